"""The `archive` source: the authors' public feature archives and their segment lists.

A take is what their loader makes of it: `action_type/recording/view` for Assembly101, the path for
EgoProceL. With `tokens.gaps: drop` and `tokens.overlap: duplicate` the token stream is theirs too:
unannotated time left out, shared time repeated, an empty segment given the nearest token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, csv_table
from pjepa.takes.archive_file import Packed, read_packed
from pjepa.takes.config import ArchiveConfig, DataConfig
from pjepa.takes.shipped import locator
from pjepa.takes.source import Annotation, Source, below, left_out, take_row
from pjepa.takes.sources.assembly101 import PERSON
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
    segments: str | None  # None: the archive holds labels itself
    label: str  # the CSV's column of class ids
    names: tuple[str, ...]  # columns that may hold class names
    background: int | None
    info: FeatureInfo
    with_labels: str | None = None  # archive whose takes bring the labels of this unlabelled one


_STITCH = FeatureInfo("PL-Stitch ViT-B/16", lookahead_s=0.0)
ARCHIVES: dict[str, Archive] = {
    "assembly101": Archive(
        "assembly101",
        "assembly101_small/assembly101_tsm_stride8.pt",
        "assembly101_annotations/assembly101_coarse_segments.csv",
        "action_id",
        ("action_cls", "action_name", "action_label"),
        None,
        FeatureInfo("TSM of Assembly101", lookahead_s=0.0, train_labels=True),
    ),
    "egoprocel_fact": Archive(
        "egoprocel",
        "egoprocel_small/fact_npy_features_4fps.pt",
        "egoprocel_annotations/egoprocel_fact_features_segments.csv",
        "fact_step_id",
        ("fact_step_name", "step_name_norm"),
        0,
        FeatureInfo("I3D of FACT, RGB, Kinetics-400", lookahead_s=I3D_WINDOW_S / 2),
    ),
    "egoprocel_pooled": Archive(
        "egoprocel",
        "egoprocel_small/pooled_features_fact.pt",
        "egoprocel_annotations/egoprocel_segments.csv",
        "fact_step_id",
        ("fact_step_name", "step_name_norm"),
        0,
        FeatureInfo("pooled V-JEPA 2.1", lookahead_s=POOLED_WINDOW_S, train_labels=True),
    ),
    "cholec80": Archive(
        "cholec80", "Cholec80/cholec80_pl_stitch_vitb16_1fps.pt", None, "", (), None, _STITCH
    ),
    "m2cai16": Archive(
        "m2cai16", "m2cai/m2cai16_pl_stitch_vitb16_1fps.pt", None, "", (), None, _STITCH
    ),
    "lemon": Archive(
        "lemon",
        "lemon/pl_stitch_vitb16_4fps/sharded/index.pt",
        None,
        "",
        (),
        None,
        _STITCH,
        with_labels="cholec80",
    ),
}


def archive_files(config: ArchiveConfig) -> tuple[str, ...]:
    """Return patterns of the files that a set reads, below `config.path`."""
    known = ARCHIVES[config.set]
    features = config.features or known.features
    found = [features]
    if known.segments is not None:
        found.append(config.segments or known.segments)
    if known.with_labels is not None:
        folder = features.rpartition("/")[0]
        found += [f"{folder}/**/*.pt" if folder else "**/*.pt"]
        found.append(ARCHIVES[known.with_labels].features)
    return tuple(found)


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


def archive_source(own: ArchiveConfig, config: DataConfig, root: Path) -> Source:
    """Return the takes of one archive."""
    if config.fold != 1:
        raise InputError(f"data.fold {config.fold}: the archives have one split; set data.fold=1")
    known = ARCHIVES[own.set]
    folder = inside(root, own.path, "the data root")
    if known.segments is None:
        from pjepa.takes.sources.surgical import surgical_source

        return surgical_source(own, config, known, folder)
    features = own.features or known.features
    packed = read_packed(inside(folder, features))
    listed = inside(folder, own.segments or known.segments)
    lines = list(read_lines_of(listed, known))
    where = below(own.path, features)
    return _source(own, config, known, packed, lines, where)


def _source(
    own: ArchiveConfig,
    config: DataConfig,
    known: Archive,
    packed: Packed,
    lines: list[Line],
    where: str,
) -> Source:
    numbers = {name: number for number, name in enumerate(packed.names)}
    takes: dict[str, list[Line]] = {}
    without: set[str] = set()
    for line in lines:
        if line.video in numbers:
            takes.setdefault(_take_id(known, line), []).append(line)
        else:
            without.add(line.video)
    videos, rows, segments, capped = [], [], [], 0
    for take_id in sorted(takes):
        part = sorted(takes[take_id], key=lambda line: (line.start_s, line.end_s, line.uid))
        number = numbers[part[0].video]
        times = packed.video_times(number)
        if not len(times):
            without.add(part[0].video)
            continue
        duration = float(times[-1]) + 1 / packed.fps
        at = locator("pt", where, str(number))
        videos.append(VideoRow(take_id, None, packed.fps, duration, features=at, root="data"))
        rows.append(_row(own, known, take_id, part))
        for line in part:
            end = _capped_end(line, times, known, own.background_cap)
            capped += end != line.end_s
            segments.append(Annotation(take_id, line.start_s, end, line.label))
    spoken = {part[0].video for part in takes.values()}
    notes = _notes(capped, own, [name for name in packed.names if name not in spoken])
    skipped = left_out("no features in the archive", sorted(without), config.missing)
    classes = _classes(known, lines)
    return Source(videos, rows, segments, classes, known.info, skipped, notes)


def read_lines_of(path: Path, known: Archive) -> Iterator[Line]:
    """Yield the rows of a segment list; raise an error that names an unreadable line."""
    table = csv_table(path, (*NEEDED, known.label), hint="it comes with the archive")
    for row in table.rows:
        yield _line(row.where, row.cells, known)


def _line(place: str, values: dict[str, str], known: Archive) -> Line:
    split = SPLITS.get(values["official_split"].lower())
    if split is None:
        raise InputError(
            f"{place}: official_split: expected {', '.join(SPLITS)}, found "
            f"{values['official_split']!r}"
        )
    start, end = (_seconds(place, key, values[key]) for key in ("start_sec", "end_sec"))
    if end < start:
        raise InputError(f"{place}: end_sec {end:g} is before start_sec {start:g}")
    label = values[known.label]
    if not label.isdecimal() or int(label) > LARGEST:  # there is a class for every id below
        raise InputError(
            f"{place}: {known.label}: expected a class id up to {LARGEST}, found {label!r}"
        )
    task = values.get("action_type", "") or values.get("task_name", "")
    name = next((values[key] for key in known.names if values.get(key)), "")
    video = re.sub(r"\.(mp4|avi)$", ".pt", values["video_path"])
    uid = values["sample_uid"]
    return Line(place, uid, video, split, task, start, end, int(label), name)


def _seconds(place: str, key: str, text: str) -> float:
    try:
        value = float(np.float32(text))
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"{place}: {key}: expected seconds, found {text!r}")
    return value


def _take_id(known: Archive, line: Line) -> str:
    """Return the loader's key: one video gives an assembly and a disassembly take."""
    if known.dataset == "assembly101":
        return f"{line.task}/{line.video.removesuffix('.pt')}"
    return line.video


def _row(own: ArchiveConfig, known: Archive, take_id: str, lines: list[Line]) -> dict[str, str]:
    """Return the take's split, task, recording, person and view."""
    splits = {line.split for line in lines}
    if len(splits) > 1:
        raise InputError(
            f"take {take_id}: in splits {', '.join(sorted(splits))} ({lines[0].where} and others); "
            "expected one"
        )
    split = splits.pop()
    if own.protocol == "release" and split == "test":
        split = "val"  # the release chooses on the split that it reports
    if known.dataset == "assembly101":
        _, _, video = take_id.partition("/")
        recording, _, view = video.rpartition("/")
        person = PERSON.search(recording)
        return take_row(
            take_id, known.dataset, split, task=lines[0].task, recording=recording or video,
            participant=person.group(1) if person else "", view=view,
        )  # fmt: skip
    name = Path(take_id).stem
    return {**take_of_video(name, split), "take_id": take_id, "task": lines[0].task}


def _capped_end(line: Line, times: np.ndarray, known: Archive, cap: int | None) -> float:
    """Return a segment's end; background ends after its first `cap` tokens, as in the release."""
    if cap is None or line.label != known.background:
        return line.end_s
    first, stop = np.searchsorted(times, [line.start_s, line.end_s], side="left").tolist()
    return float(times[first + cap]) if stop - first > cap else line.end_s


def _classes(known: Archive, lines: list[Line]) -> Classes:
    """Return class names where listed; ids run to the largest label, as in the release."""
    names = {line.label: line.name for line in lines if line.name}
    count = max((line.label for line in lines), default=-1) + 1
    written = [
        names.get(label, f"{known.label.removesuffix('_id')} {label}") for label in range(count)
    ]
    if len(set(written)) < count:
        written = [f"{name} ({label})" for label, name in enumerate(written)]
    return Classes(tuple(written), known.background)


def _notes(capped: int, own: ArchiveConfig, unnamed: list[str]) -> list[Note]:
    notes = []
    if capped:
        told = f"{capped} background segments cut to {own.background_cap} tokens, by label"
        notes.append(Note(told))
    if unnamed:
        told = f"{len(unnamed)} videos of the archive have no segment"
        notes.append(Note(told, tuple(unnamed)))
    return notes
