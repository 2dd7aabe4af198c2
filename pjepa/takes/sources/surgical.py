"""Surgical archives: phases beside the tokens (Cholec80, M2CAI16); LEMON's unlabelled shards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.runs import runs
from pjepa.core.tables import Classes, VideoRow
from pjepa.storage.reading import read_torch
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note
from pjepa.takes.archive_file import Packed, read_packed, string_list, tensor
from pjepa.takes.config import ArchiveConfig, DataConfig
from pjepa.takes.shipped import locator
from pjepa.takes.source import Annotation, FoundTakes, Source, below, take_row
from pjepa.takes.sources.archive import ARCHIVES, SPLITS, Archive, packed_row
from pjepa.ui.console import InputError

DEVELOPMENT = {"train": (1, 32), "val": (33, 40), "test": (41, 80)}  # Cholec80, to choose on 33-40
TABLE1 = {"train": (1, 40), "test": (41, 80)}


def surgical_source(config: DataConfig, known: Archive, folder: Path) -> Source:
    """Return Cholec80 or M2CAI16 alone, or LEMON for pretraining with labelled Cholec80."""
    if known.with_labels is None:
        return _phases(config, known, folder)
    labelled = ARCHIVES[known.with_labels]
    phases = _phases(config, labelled, folder)
    shards = list(_shards(config, known, folder))
    note = f"{len(shards)} {known.dataset} videos to pretrain on, labels from {labelled.dataset}"
    return replace(
        phases,
        videos=[*(row for row, _ in shards), *phases.videos],
        takes=[*(take for _, take in shards), *phases.takes],
        notes=[Note(note), *phases.notes],
    )


def _phases(config: DataConfig, known: Archive, folder: Path) -> Source:
    path = inside(folder, known.features)
    packed, content, found = read_packed(path), read_torch(path), FoundTakes()
    names = tuple(string_list(path, content, "phase_class_names"))
    if len(set(names)) < len(names):
        raise InputError(f"{path}: phase_class_names: a name appears twice: {names}")
    labels = tensor(path, content, "phase_labels", 1).numpy()
    if len(labels) != len(packed.times) or (len(labels) and int(labels.max()) >= len(names)):
        raise InputError(
            f"{path}: phase_labels: expected {len(packed.times)} below {len(names)}, found "
            f"{len(labels)} up to {int(labels.max()) if len(labels) else 0}"
        )
    splits = _splits(config.archive, known, packed, content)
    for number, (video, split) in enumerate(zip(packed.names, splits, strict=True)):
        take_id = f"{known.dataset}/{video}"
        first, stop = packed.span(number)
        if first == stop:
            found.missing["no token in the archive"].append(take_id)
            continue
        row = packed_row(take_id, packed, number, below(config.archive.path, known.features))
        found.videos.append(row)
        found.takes.append(_row(take_id, known.dataset, split, video))
        limits = np.append(packed.video_times(number), row.duration_s)
        starts, lengths = runs(labels[first:stop])
        found.segments += [
            Annotation(take_id, float(limits[a]), float(limits[a + n]), int(labels[first + a]))
            for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)
            if labels[first + a] >= 0  # a negative phase is unknown and no segment
        ]
    return found.source(Classes(names, known.background), config, known.info)


def _splits(
    own: ArchiveConfig, known: Archive, packed: Packed, content: dict[str, Any]
) -> Iterator[str]:
    """Yield the split of every video: by number for Cholec80, else as the archive says."""
    if known.dataset != "cholec80":
        for split in string_list(packed.path, content, "source_splits", len(packed.names)):
            if split.lower() not in SPLITS:
                names = ", ".join(SPLITS)
                raise InputError(f"{packed.path}: source_splits: expected {names}, found {split!r}")
            yield SPLITS[split.lower()]
        return
    ranges = DEVELOPMENT if own.protocol == "release" or own.set == "lemon" else TABLE1
    for video in packed.names:
        digits = re.search(r"(\d+)\D*$", video)
        number = int(digits.group(1)) if digits else 0
        splits = [name for name, (first, last) in ranges.items() if first <= number <= last]
        if not splits:
            raise InputError(
                f"{packed.path}: video_ids: expected video01 to video80, found {video!r}"
            )
        yield splits[0]


def _shards(
    config: DataConfig, known: Archive, folder: Path
) -> Iterator[tuple[VideoRow, dict[str, Any]]]:
    """Yield LEMON's videos by its index; shards are opened when tokens are made."""
    path = inside(folder, known.features)
    if not path.is_file():
        raise InputError(f"{path}: no such index; `pjepa fetch` gets the public archives")
    index = read_torch(path)
    names = string_list(path, index, "video_ids")
    splits = string_list(path, index, "splits", len(names))
    columns = (
        _numbers(path, index, key, len(names))
        for key in ("shard_ids", "local_indices", "num_tokens")
    )
    fps = index.get("target_fps") or 4.0
    if not isinstance(fps, int | float):
        raise InputError(f"{path}: target_fps: expected a number, found {fps!r}")
    base = known.features.rpartition("/")[0]
    files = [f"{base}/{shard}" for shard in string_list(path, index, "shards")]
    missing = [file for file in files if not inside(folder, file).is_file()]
    if missing:
        raise InputError(f"{path}: shards: {len(missing)} are not there, first {missing[0]}")
    for video, split, shard, number, count in zip(names, splits, *columns, strict=True):
        if shard >= len(files):
            raise InputError(f"{path}: shard_ids: {video!r} in shard {shard} of {len(files)}")
        if not count:
            raise InputError(f"{path}: num_tokens: {video!r} has none")
        take_id = f"{known.dataset}/{video}"
        at = locator("pt", below(config.archive.path, files[shard]), str(number))
        row = VideoRow(take_id, None, fps, count / fps, features=at, root="data")
        yield row, _row(take_id, known.dataset, SPLITS.get(split, "pretrain"), video)


def _numbers(path: Path, index: dict[str, Any], key: str, length: int) -> list[int]:
    """Return a tensor of whole numbers, one per video."""
    found: list[Any] = tensor(path, index, key, 1).tolist()
    if len(found) != length or not all(isinstance(n, int) and n >= 0 for n in found):
        raise InputError(f"{path}: {key}: expected {length} whole numbers from 0")
    return found


def _row(take_id: str, dataset: str, split: str, video: str) -> dict[str, Any]:
    """Return a row; no archive names the surgeon, so every video is its own group."""
    return take_row(take_id, dataset, split, task="surgery", recording=f"{dataset}/{video}")
