"""The `assembly101` source: coarse segmentation on the TSM features or the videos of one view.

Frames count at 30 per second. A recording gives an assembly and a disassembly take, each its
labelled span; both are one group. From video, both takes run over the whole recording: what lies
outside their segments is a gap (tokens.gaps).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, closest, csv_table
from pjepa.takes.config import Assembly101Config, DataConfig
from pjepa.takes.shipped import last_frame, locator, numpy_array, span_key
from pjepa.takes.source import Annotation, FoundTakes, Source, below, lasting, left_out, take_row
from pjepa.takes.sources.mstcn import read_lines
from pjepa.ui.console import InputError, track
from pjepa.video.files import Measured, measured_videos

FPS = 30.0  # of all frame numbers; the recordings have 60
BEYOND = 10**10 - 1  # a frame number after every other
RowAndEnd = tuple[VideoRow | None, int]  # the row, and the first frame after those that are there


@dataclass(frozen=True)
class LmdbFrames:
    """TSM rows of one view in an LMDB environment.

    `row` of every layout: a take's frames first .. end - 1; `end` None: all there are.
    """

    own: Assembly101Config
    name: str
    store: Path
    what: str = "features"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        key = f"{sequence}/{self.own.view}/{self.own.view}"
        last = last_frame(self.store, key, end or BEYOND)
        first, stop = max(1, first), 0 if last is None else last + 1
        where = locator("lmdb", below(self.own.path, self.name), f"{key}:{first}:{stop}")
        return _feature_row(take_id, where, first, stop)


@dataclass(frozen=True)
class NumpyFrames:
    """TSM rows of one view, an array per recording."""

    own: Assembly101Config
    base: Path
    what: str = "features"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        name = f"TSM_features/{sequence}/{self.own.view}/features.npy"
        file = inside(self.base, name)
        columns = numpy_array(file).shape[1] if file.is_file() else 0
        stop = min(columns, end or columns)
        where = locator("npy-dt", below(self.own.path, name), span_key(first, stop))
        return _feature_row(take_id, where, first, stop)


@dataclass(frozen=True)
class VideoFrames:
    """The recordings; every take of one runs over all of it."""

    own: Assembly101Config
    files: dict[str, str | None]
    measured: dict[str, Measured]
    what: str = "video"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        found, file = self.measured.get(sequence), self.files[sequence]
        if found is None or file is None or found.fault:
            return None, 0
        row = found.row(take_id, below(self.own.path, file))
        return row, round(found.duration_s * FPS) + 1


FrameSource = LmdbFrames | NumpyFrames | VideoFrames


def opened_frames(
    own: Assembly101Config, base: Path, sequences: Iterable[str], config: DataConfig
) -> FrameSource:
    """Return the layout found on disk for the requested view."""
    if own.input == "video":
        files = {name: _video(own, base, name) for name in sorted(sequences)}
        here = {name: base / file for name, file in files.items() if file}
        return VideoFrames(own, files, measured_videos(here, config.workers, config.max_gap_s))
    for folder in ("db_TSM_features/", ""):
        store = inside(base, f"{folder}{own.view}")
        if (store / "data.mdb").is_file():
            return LmdbFrames(own, f"{folder}{own.view}", store)
    if (base / "TSM_features").is_dir():
        return NumpyFrames(own, base)
    raise InputError(
        f"{base}: no features of view {own.view!r}: expected db_TSM_features/{own.view}/data.mdb, "
        f"{own.view}/data.mdb or TSM_features/; set data.assembly101.view"
    )


def _feature_row(take_id: str, where: str, first: int, stop: int) -> RowAndEnd:
    if first >= stop:
        return None, 0
    seconds = (stop - first) / FPS
    return VideoRow(take_id, None, FPS, seconds, features=where, root="data"), stop


def _video(own: Assembly101Config, base: Path, sequence: str) -> str | None:
    for folder in ("", "videos/", "recordings/"):
        name = f"{folder}{sequence}/{own.view}.mp4"
        if inside(base, name).is_file():
            return name
    return None


COARSE = "coarse-annotations"
KINDS = ("assembly", "disassembly")
# Trained on Assembly101's train labels; one frame at a time, so without look-ahead.
TSM = FeatureInfo("TSM of Assembly101", lookahead_s=0.0, train_labels=True)
PERSON = re.compile(r"_(\d+)-\w+_\d+_user_id")  # in the name of a recording


@dataclass(frozen=True)
class SplitLine:
    """One line of a split file: a recording, what happens in it, the toy."""

    kind: str
    sequence: str
    split: str
    toy: str


@dataclass
class FoundStreams(FoundTakes):
    """Takes of recordings, and those whose segments overlap or leave gaps."""

    gaps: list[str] = field(default_factory=list)


def assembly101_source(own: Assembly101Config, config: DataConfig, root: Path) -> Source:
    """Return the takes of train and val; those of test, whose labels are withheld, on request."""
    base = inside(root, own.path, "the data root")
    classes = read_actions(base / COARSE / "actions.csv")
    splits = ("train", "val", "test") if own.test else ("train", "val")
    streams = [s for split in splits for kind in KINDS for s in _streams(base, split, kind)]
    _check_disjoint(streams, base)
    frames, found = opened_frames(own, base, {s.sequence for s in streams}, config), FoundStreams()
    ids = {name: number for number, name in enumerate(classes.names)}
    for stream in track(streams, "takes: read", unit="take"):
        _read_take(stream, frames, base, ids, found)
    segments, notes = lasting(found.segments)
    if found.cut:
        told = f"{len(found.cut)} takes end with their {frames.what}, before their labels"
        notes.append(Note(told, tuple(found.cut)))
    if found.gaps:
        told = f"{len(found.gaps)} takes whose segments overlap or leave gaps"
        notes.append(Note(told, tuple(found.gaps)))
    skipped = left_out(f"no {frames.what} of view {own.view}", found.missing, config.missing)
    features = TSM if own.input == "tsm" else None
    return Source(found.videos, found.takes, segments, classes, features, skipped, notes)


def read_actions(path: Path) -> Classes:
    """Return coarse actions by action_id; none of them is background."""
    rows: dict[str, str] = {}
    table = csv_table(path, ("action_id", "action_cls"), hint="fetch the coarse annotations")
    for row in table.rows:
        number, name = row.cells["action_id"], row.cells["action_cls"]
        if number in rows or name in rows.values() or not name:
            raise InputError(f"{row.where}: action {number} {name!r}: expected each once")
        rows[number] = name
    if set(rows) != {str(number) for number in range(len(rows))} or not rows:
        raise InputError(f"{path}: action_id must run from 0 to {len(rows) - 1} without a gap")
    return Classes(tuple(rows[str(number)] for number in range(len(rows))), None)


def _streams(base: Path, split: str, kind: str) -> list[SplitLine]:
    """Return the lines `{kind}_{sequence}.txt, is_shared, toy_id, toy_name` of a split file."""
    path = base / COARSE / "coarse_splits" / f"{split}_coarse_{kind}.txt"
    streams: list[SplitLine] = []
    for number, line in enumerate(read_lines(path), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        name = cells[0].removesuffix(".txt")
        if name.removeprefix(f"{kind}_") in {stream.sequence for stream in streams}:
            raise InputError(f"{path}, line {number}: {name!r} appears twice")
        if not name.startswith(f"{kind}_"):
            raise InputError(f"{path}, line {number}: expected {kind}_SEQUENCE.txt, found {line!r}")
        toy = cells[3] if len(cells) > 3 else ""
        streams.append(SplitLine(kind, name.removeprefix(f"{kind}_"), split, toy))
    return streams


def _check_disjoint(streams: list[SplitLine], base: Path) -> None:
    """Raise an error if two splits list the same take."""
    split_of: dict[tuple[str, str], str] = {}
    for stream in streams:
        before = split_of.setdefault((stream.kind, stream.sequence), stream.split)
        if before != stream.split:
            raise InputError(
                f"{base / COARSE / 'coarse_splits'}: {stream.kind}_{stream.sequence} is in "
                f"{before} and in {stream.split}"
            )


def _read_take(
    stream: SplitLine, frames: FrameSource, base: Path, ids: Mapping[str, int], found: FoundStreams
) -> None:
    """Add one take: the frames from its first label to its last."""
    take_id = f"{stream.kind}/{stream.sequence}/{frames.own.view}"
    spans = _labels(stream, base, ids)
    long = [span for span in spans if span[0] < span[1]]
    first = min((start for start, _, _ in long), default=1)
    end = max((end for _, end, _ in long), default=None)
    row, stop = frames.row(take_id, stream.sequence, first, end)
    if row is None:
        found.missing.append(take_id)
        return
    if end is not None and stop < end:
        found.cut.append(f"{take_id} ({end - stop} frames)")
    if end is not None and sum(stop - start for start, stop, _ in spans) != end - first:
        found.gaps.append(take_id)
    found.videos.append(row)
    found.takes.append(_row(stream, take_id, frames.own.view))
    found.segments += [Annotation(take_id, s / FPS, e / FPS, label) for s, e, label in spans]


def _row(stream: SplitLine, take_id: str, view: str) -> dict[str, Any]:
    person = PERSON.search(stream.sequence)
    return take_row(
        take_id,
        "assembly101",
        stream.split,
        task=stream.toy,
        recording=stream.sequence,
        participant=person.group(1) if person else "",
        view=view,
    )


def _labels(stream: SplitLine, base: Path, ids: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return (start frame, end frame, label) rows; none where test labels are withheld."""
    name = f"{stream.kind}_{stream.sequence}.txt"
    path = inside(base / COARSE / "coarse_labels", name)
    if stream.split == "test" and not path.is_file():
        return []
    spans = []
    for number, line in enumerate(read_lines(path), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        where = f"{path}, line {number}"
        if len(cells) < 3 or not (cells[0].isdecimal() and cells[1].isdecimal()):
            raise InputError(f"{where}: expected `start TAB end TAB action`, found {line!r}")
        start, end = int(cells[0]), int(cells[1])
        if start > end:
            raise InputError(
                f"{where}: frames {start} to {end}; expected the end not before the start"
            )
        if cells[2] not in ids:
            raise InputError(f"{where}: no action {cells[2]!r}{closest(cells[2], ids)}")
        spans.append((start, end, ids[cells[2]]))
    if all(start == end for start, end, _ in spans):
        raise InputError(f"{path}: no segment; expected `start TAB end TAB action` lines")
    return spans
