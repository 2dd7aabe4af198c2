"""Surgical archives: phases beside the tokens (Cholec80, M2CAI16); LEMON's unlabelled shards."""

from __future__ import annotations

import re
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
from pjepa.takes.source import Annotation, Source, below, left_out, take_row
from pjepa.takes.sources.archive import ARCHIVES, Archive
from pjepa.ui.console import InputError

SPLITS = {"train": "train", "val": "val", "validation": "val", "test": "test"}
DEVELOPMENT = {"train": (1, 32), "val": (33, 40), "test": (41, 80)}  # Cholec80, to choose on 33-40
TABLE1 = {"train": (1, 40), "test": (41, 80)}


def surgical_source(own: ArchiveConfig, config: DataConfig, known: Archive, folder: Path) -> Source:
    """Return Cholec80 or M2CAI16 alone, or LEMON for pretraining with labelled Cholec80."""
    if known.with_labels is None:
        return _phases(own, config, known, folder)
    labelled = ARCHIVES[known.with_labels]
    phases = _phases(own.model_copy(update={"features": None}), config, labelled, folder)
    videos, takes = _shards(own, known, folder)
    note = f"{len(videos)} {known.dataset} videos to pretrain on, labels from {labelled.dataset}"
    return Source(
        [*videos, *phases.videos],
        [*takes, *phases.takes],
        phases.segments,
        phases.classes,
        known.info,
        phases.skipped,
        [Note(note), *phases.notes],
    )


def _phases(own: ArchiveConfig, config: DataConfig, known: Archive, folder: Path) -> Source:
    features = own.features or known.features
    packed = read_packed(inside(folder, features))
    names = tuple(string_list(packed.path, packed.extra, "phase_class_names"))
    if len(set(names)) < len(names):
        raise InputError(f"{packed.path}: phase_class_names: a name appears twice: {names}")
    labels = tensor(packed.path, packed.extra, "phase_labels", 1).numpy()
    if len(labels) != len(packed.times) or (len(labels) and int(labels.max()) >= len(names)):
        raise InputError(
            f"{packed.path}: phase_labels: expected {len(packed.times)} below {len(names)}, found "
            f"{len(labels)} up to {int(labels.max()) if len(labels) else 0}"
        )
    videos, takes, segments, empty = [], [], [], []
    for number, (video, split) in enumerate(_splits(own, known, packed)):
        take_id = f"{known.dataset}/{video}"
        times = packed.video_times(number)
        first, stop = packed.span(number)
        if first == stop:
            empty.append(take_id)
            continue
        end = float(times[-1]) + 1 / packed.fps
        at = locator("pt", below(own.path, features), str(number))
        videos.append(VideoRow(take_id, None, packed.fps, end, features=at, root="data"))
        takes.append(_row(take_id, known.dataset, split, video))
        segments += _phase_segments(take_id, labels[first:stop], times, end)
    skipped = left_out("no token in the archive", empty, config.missing)
    classes = Classes(names, known.background)
    return Source(videos, takes, segments, classes, known.info, skipped)


def _splits(own: ArchiveConfig, known: Archive, packed: Packed) -> list[tuple[str, str]]:
    """Return (video, split) pairs: by number for Cholec80, else as the archive says."""
    if known.dataset != "cholec80":
        given = string_list(packed.path, packed.extra, "source_splits", len(packed.names))
        unknown = [split for split in given if split.lower() not in SPLITS]
        if unknown:
            raise InputError(
                f"{packed.path}: source_splits: expected {', '.join(SPLITS)}, found {unknown[0]!r}"
            )
        return [(v, SPLITS[s.lower()]) for v, s in zip(packed.names, given, strict=True)]
    ranges = DEVELOPMENT if own.protocol == "release" or own.set == "lemon" else TABLE1
    found = []
    for video in packed.names:
        digits = re.search(r"(\d+)\D*$", video)
        number = int(digits.group(1)) if digits else 0
        split = [name for name, (low, high) in ranges.items() if low <= number <= high]
        if not split:
            raise InputError(
                f"{packed.path}: video_ids: expected video01 to video80, found {video!r}"
            )
        found.append((video, split[0]))
    return found


def _phase_segments(
    take_id: str, labels: np.ndarray, times: np.ndarray, end: float
) -> list[Annotation]:
    """Return runs of equal phases; a negative one is unknown and no segment."""
    starts, lengths = runs(labels)
    limits = np.append(times, end)
    return [
        Annotation(take_id, float(limits[first]), float(limits[first + count]), int(labels[first]))
        for first, count in zip(starts.tolist(), lengths.tolist(), strict=True)
        if labels[first] >= 0
    ]


def _shards(
    own: ArchiveConfig, known: Archive, folder: Path
) -> tuple[list[VideoRow], list[dict[str, Any]]]:
    """Return LEMON's videos by its index; shards are opened when tokens are made."""
    features = own.features or known.features
    path = inside(folder, features)
    if not path.is_file():
        raise InputError(f"{path}: no such index; `pjepa fetch` gets the public archives")
    index = read_torch(path)
    names = string_list(path, index, "video_ids")
    shards = string_list(path, index, "shards")
    splits = string_list(path, index, "splits", len(names))
    where, local, tokens = (
        _numbers(path, index, key, len(names))
        for key in ("shard_ids", "local_indices", "num_tokens")
    )
    fps = index.get("target_fps") or 4.0
    if not isinstance(fps, int | float):
        raise InputError(f"{path}: target_fps: expected a number, found {fps!r}")
    base = features.rpartition("/")[0]
    files = [f"{base}/{shard}" if base else shard for shard in shards]
    missing = [file for file in files if not inside(folder, file).is_file()]
    if missing:
        raise InputError(f"{path}: shards: {len(missing)} are not there, first {missing[0]}")
    videos, takes = [], []
    for video, split, shard, number, count in zip(names, splits, where, local, tokens, strict=True):
        if shard >= len(files):
            raise InputError(f"{path}: shard_ids: {video!r} in shard {shard} of {len(files)}")
        if not count:
            raise InputError(f"{path}: num_tokens: {video!r} has none")
        take_id = f"{known.dataset}/{video}"
        at = locator("pt", below(own.path, files[shard]), str(number))
        videos.append(VideoRow(take_id, None, fps, count / fps, features=at, root="data"))
        takes.append(_row(take_id, known.dataset, SPLITS.get(split, "pretrain"), video))
    return videos, takes


def _numbers(path: Path, index: dict[str, Any], key: str, length: int) -> list[int]:
    """Return a tensor of whole numbers, one per video."""
    found: list[Any] = tensor(path, index, key, 1).tolist()
    if len(found) != length or not all(isinstance(n, int) and n >= 0 for n in found):
        raise InputError(f"{path}: {key}: expected {length} whole numbers from 0")
    return found


def _row(take_id: str, dataset: str, split: str, video: str) -> dict[str, Any]:
    """Return a row; no archive names the surgeon, so every video is its own group."""
    return take_row(take_id, dataset, split, task="surgery", recording=f"{dataset}/{video}")
