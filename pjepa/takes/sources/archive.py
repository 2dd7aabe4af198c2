"""The `archive` source: the authors' public feature archives and their segment lists.

A take is what their loader makes of it: `action_type/recording/view` for Assembly101, the path for
EgoProceL. With `tokens.gaps: drop` and `tokens.overlap: duplicate` the token stream is theirs too:
unannotated time left out, shared time repeated, an empty segment given the nearest token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.runs import runs
from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.storage.reading import read_torch
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, as_number, csv_table
from pjepa.takes.config import ArchiveConfig, DataConfig
from pjepa.takes.shipped import (
    Packed,
    locator,
    read_packed,
    shipped_row,
    string_list,
    tensor,
)
from pjepa.takes.source import Annotation, Source, SourceBuilder, below, take_row
from pjepa.takes.sources.assembly101 import person_of
from pjepa.takes.sources.egoprocel import take_of_video
from pjepa.ui.console import InputError

# The authors' public feature archives (data set FelTris/pjepa_features on the hub), by name.

I3D_WINDOW_S = 6.4  # 64 frames at 10 per second, centred
POOLED_WINDOW_S = 16.0  # the paper's 64 frames at 4 per second


@dataclass(frozen=True)
class Archive:
    """Where an archive keeps its features and segments, and what its columns are called."""

    dataset: str
    features: str  # relative to data.archive.path
    info: FeatureInfo
    segments: str | None = None  # None: the archive holds labels itself
    label: str = ""  # the CSV's column of class ids
    names: tuple[str, ...] = ("fact_step_name", "step_name_norm")  # columns of class names
    background: int | None = None
    with_labels: str | None = None  # archive whose takes bring the labels of this unlabelled one


STITCH = FeatureInfo("PL-Stitch ViT-B/16", lookahead_s=0.0)
ARCHIVES: dict[str, Archive] = {
    "assembly101": Archive(
        "assembly101",
        "assembly101_small/assembly101_tsm_stride8.pt",
        FeatureInfo("TSM of Assembly101", lookahead_s=0.0, train_labels=True),
        "assembly101_annotations/assembly101_coarse_segments.csv",
        "action_id",
        ("action_cls", "action_name", "action_label"),
    ),
    "egoprocel_fact": Archive(
        "egoprocel",
        "egoprocel_small/fact_npy_features_4fps.pt",
        FeatureInfo("I3D of FACT, RGB, Kinetics-400", lookahead_s=I3D_WINDOW_S / 2),
        "egoprocel_annotations/egoprocel_fact_features_segments.csv",
        "fact_step_id",
        background=0,
    ),
    "egoprocel_pooled": Archive(
        "egoprocel",
        "egoprocel_small/pooled_features_fact.pt",
        FeatureInfo("pooled V-JEPA 2.1", lookahead_s=POOLED_WINDOW_S, train_labels=True),
        "egoprocel_annotations/egoprocel_segments.csv",
        "fact_step_id",
        background=0,
    ),
    "cholec80": Archive("cholec80", "Cholec80/cholec80_pl_stitch_vitb16_1fps.pt", STITCH),
    "m2cai16": Archive("m2cai16", "m2cai/m2cai16_pl_stitch_vitb16_1fps.pt", STITCH),
    "lemon": Archive(
        "lemon", "lemon/pl_stitch_vitb16_4fps/sharded/index.pt", STITCH, with_labels="cholec80"
    ),
}


def archive_files(config: ArchiveConfig) -> tuple[str, ...]:
    """Return patterns of the files that a set reads, below `config.path`."""
    archive = ARCHIVES[config.set]
    files = [archive.features, *([archive.segments] if archive.segments else [])]
    if archive.with_labels is not None:
        folder = archive.features.rpartition("/")[0]
        files += [f"{folder}/**/*.pt", ARCHIVES[archive.with_labels].features]
    return tuple(files)


SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
LARGEST = 99_999  # class id
NEEDED = ("sample_uid", "video_path", "official_split", "start_sec", "end_sec")


@dataclass(frozen=True)
class Line:
    """One row of a segment list; times are single precision, as the loader compares them."""

    where: str  # in the file
    uid: str
    video: str  # as the archive spells it
    split: str
    task: str
    start_s: float
    end_s: float
    label: int
    name: str


def archive_source(config: DataConfig, root: Path) -> Source:
    """Return the takes of one archive."""
    own = config.archive
    archive, folder = ARCHIVES[own.set], inside(root, own.path, "the data root")
    if archive.segments is None:
        return _surgical(config, archive, folder)
    packed = read_packed(inside(folder, archive.features))
    columns = (*NEEDED, archive.label)
    rows = csv_table(inside(folder, archive.segments), columns, hint="it comes with the archive")
    lines = [_line(row.where, row.cells, archive) for row in rows]
    builder, numbers = (
        SourceBuilder(),
        {name: number for number, name in enumerate(packed.names)},
    )
    takes: dict[str, list[Line]] = {}
    without = {line.video for line in lines if line.video not in numbers}
    for line in lines:
        if line.video in numbers:
            takes.setdefault(_take_id(archive, line), []).append(line)
    for take_id, mine in sorted(takes.items()):
        number = numbers[mine[0].video]
        if not len(packed.video_times(number)):
            without.add(mine[0].video)
            continue
        builder.videos.append(
            packed_row(take_id, packed, number, below(own.path, archive.features))
        )
        builder.takes.append(_row(own, archive, take_id, mine))
        builder.segments += _segments(
            own, archive, take_id, mine, packed.video_times(number), builder
        )
    spoken = {line.video for line in lines}
    builder.seen["videos of the archive have no segment"] += [
        name for name in packed.names if name not in spoken
    ]
    builder.missing["no features in the archive"] += sorted(without)
    return builder.source(_classes(archive, lines), config, archive.info)


def packed_row(take_id: str, packed: Packed, number: int, where: str) -> VideoRow:
    """Return the row of a take that has all tokens of a video of the archive `where`."""
    end = float(packed.video_times(number)[-1]) + 1 / packed.fps
    return shipped_row(take_id, locator("pt", where, str(number)), packed.fps, end)


def _segments(
    own: ArchiveConfig,
    archive: Archive,
    take_id: str,
    lines: list[Line],
    times: np.ndarray,
    builder: SourceBuilder,
) -> Iterator[Annotation]:
    """Yield segments in order; background ends after its first tokens, as in the release."""
    cap = own.background_cap
    for line in sorted(lines, key=lambda line: (line.start_s, line.end_s, line.uid)):
        end = line.end_s
        if cap is not None and line.label == archive.background:
            first, stop = np.searchsorted(times, [line.start_s, end], side="left").tolist()
            if stop - first > cap:
                end = float(times[first + cap])
                builder.seen[f"background segments cut to {cap} tokens, by label"].append(take_id)
        yield Annotation(take_id, line.start_s, end, line.label)


def _line(place: str, values: dict[str, str], archive: Archive) -> Line:
    split = SPLITS.get(values["official_split"].lower())
    if split is None:
        value = values["official_split"]
        raise InputError(f"{place}: official_split: expected {', '.join(SPLITS)}, found {value!r}")
    start, end = (
        float(np.float32(as_number(values[key], f"{place}: {key}")))
        for key in ("start_sec", "end_sec")
    )
    if not -np.inf < start <= end < np.inf:
        raise InputError(f"{place}: end_sec {end:g} is before start_sec {start:g}")
    label = values[archive.label]
    if not label.isdecimal() or int(label) > LARGEST:  # there is a class for every id below
        raise InputError(
            f"{place}: {archive.label}: expected a class id up to {LARGEST}, found {label!r}"
        )
    task = values.get("action_type", "") or values.get("task_name", "")
    name = next((values[key] for key in archive.names if values.get(key)), "")
    video = re.sub(r"\.(mp4|avi)$", ".pt", values["video_path"])
    return Line(place, values["sample_uid"], video, split, task, start, end, int(label), name)


def _take_id(archive: Archive, line: Line) -> str:
    """Return the loader's key: one video gives an assembly and a disassembly take."""
    if archive.dataset == "assembly101":
        return f"{line.task}/{line.video.removesuffix('.pt')}"
    return line.video


def _row(own: ArchiveConfig, archive: Archive, take_id: str, lines: list[Line]) -> dict[str, str]:
    """Return the take's split, task, recording, person and view."""
    splits, task = {line.split for line in lines}, lines[0].task
    if len(splits) > 1:
        raise InputError(
            f"take {take_id}: in splits {', '.join(sorted(splits))} ({lines[0].where} and others); "
            "expected one"
        )
    split = splits.pop()
    if own.protocol == "release" and split == "test":
        split = "val"  # the release chooses on the split that it reports
    if archive.dataset != "assembly101":
        return {**take_of_video(Path(take_id).stem, split), "take_id": take_id, "task": task}
    video = lines[0].video.removesuffix(".pt")
    recording, _, view = video.rpartition("/")
    return take_row(
        take_id, archive.dataset, split, task=task, recording=recording or video,
        participant=person_of(recording), view=view,
    )  # fmt: skip


def _classes(archive: Archive, lines: list[Line]) -> Classes:
    """Return class names where listed; ids run to the largest label, as in the release."""
    names = {line.label: line.name for line in lines if line.name}
    count = max((line.label for line in lines), default=-1) + 1
    written = [
        names.get(label, f"{archive.label.removesuffix('_id')} {label}") for label in range(count)
    ]
    if len(set(written)) < count:
        written = [f"{name} ({label})" for label, name in enumerate(written)]
    return Classes(tuple(written), archive.background)


# Surgical archives: phases beside the tokens (Cholec80, M2CAI16); LEMON's unlabelled shards.

DEVELOPMENT = {"train": (1, 32), "val": (33, 40), "test": (41, 80)}  # Cholec80, to choose on 33-40
TABLE1 = {"train": (1, 40), "test": (41, 80)}


def _surgical(config: DataConfig, archive: Archive, folder: Path) -> Source:
    """Return Cholec80 or M2CAI16 alone, or LEMON for pretraining with labelled Cholec80."""
    if archive.with_labels is None:
        return _phases(config, archive, folder)
    labelled = ARCHIVES[archive.with_labels]
    phases = _phases(config, labelled, folder)
    shards = list(_shards(config, archive, folder))
    note = f"{len(shards)} {archive.dataset} videos to pretrain on, labels from {labelled.dataset}"
    return replace(
        phases,
        videos=[*(row for row, _ in shards), *phases.videos],
        takes=[*(take for _, take in shards), *phases.takes],
        notes=[Note(note), *phases.notes],
    )


def _phases(config: DataConfig, archive: Archive, folder: Path) -> Source:
    path = inside(folder, archive.features)
    packed, content, builder = read_packed(path), read_torch(path), SourceBuilder()
    names = tuple(string_list(path, content, "phase_class_names"))
    if len(set(names)) < len(names):
        raise InputError(f"{path}: phase_class_names: a name appears twice: {names}")
    labels = tensor(path, content, "phase_labels", 1).long().numpy()
    if len(labels) != len(packed.times) or (len(labels) and int(labels.max()) >= len(names)):
        raise InputError(
            f"{path}: phase_labels: expected {len(packed.times)} below {len(names)}, found "
            f"{len(labels)} up to {int(labels.max()) if len(labels) else 0}"
        )
    splits = _splits(config.archive, archive, packed, content)
    for number, (video, split) in enumerate(zip(packed.names, splits, strict=True)):
        take_id = f"{archive.dataset}/{video}"
        first, stop = packed.span(number)
        if first == stop:
            builder.missing["no token in the archive"].append(take_id)
            continue
        row = packed_row(take_id, packed, number, below(config.archive.path, archive.features))
        builder.videos.append(row)
        builder.takes.append(_surgery(take_id, archive.dataset, split, video))
        limits = np.append(packed.video_times(number), row.duration_s)
        starts, lengths = runs(labels[first:stop])
        builder.segments += [
            Annotation(take_id, float(limits[a]), float(limits[a + n]), int(labels[first + a]))
            for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)
            if labels[first + a] >= 0  # a negative phase is unknown and no segment
        ]
    return builder.source(Classes(names, archive.background), config, archive.info)


def _splits(
    own: ArchiveConfig, archive: Archive, packed: Packed, content: dict[str, Any]
) -> Iterator[str]:
    """Yield the split of every video: by number for Cholec80, else as the archive says."""
    if archive.dataset != "cholec80":
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
    config: DataConfig, archive: Archive, folder: Path
) -> Iterator[tuple[VideoRow, dict[str, Any]]]:
    """Yield LEMON's videos by its index; shards are opened when tokens are made."""
    path = inside(folder, archive.features)
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
    base = archive.features.rpartition("/")[0]
    files = [f"{base}/{shard}" for shard in string_list(path, index, "shards")]
    missing = [file for file in files if not inside(folder, file).is_file()]
    if missing:
        raise InputError(f"{path}: shards: {len(missing)} are not there, first {missing[0]}")
    for video, split, shard, number, count in zip(names, splits, *columns, strict=True):
        if shard >= len(files):
            raise InputError(f"{path}: shard_ids: {video!r} in shard {shard} of {len(files)}")
        if not count:
            raise InputError(f"{path}: num_tokens: {video!r} has none")
        take_id = f"{archive.dataset}/{video}"
        at = locator("pt", below(config.archive.path, files[shard]), str(number))
        row = shipped_row(take_id, at, fps, count / fps)
        yield row, _surgery(take_id, archive.dataset, SPLITS.get(split, "pretrain"), video)


def _numbers(path: Path, index: dict[str, Any], key: str, length: int) -> list[int]:
    """Return a tensor of whole numbers, one per video."""
    numbers: list[Any] = tensor(path, index, key, 1).tolist()
    if len(numbers) != length or not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise InputError(f"{path}: {key}: expected {length} whole numbers from 0")
    return numbers


def _surgery(take_id: str, dataset: str, split: str, video: str) -> dict[str, Any]:
    """Return a row; no archive names the surgeon, so every video is its own group."""
    return take_row(take_id, dataset, split, task="surgery", recording=f"{dataset}/{video}")
