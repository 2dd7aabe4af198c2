"""The `assembly101` source: coarse segmentation on the TSM features or the videos of one view.

Frames count at 30 per second. A recording gives an assembly and a disassembly take, each its
labelled span; both are one group. From video, both takes run over the whole recording: what lies
outside their segments is a gap (tokens.gaps).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import closest, csv_table, file_lines, in_order
from pjepa.takes.config import Assembly101Config, DataConfig
from pjepa.takes.shipped import last_frame, locator, numpy_array, shipped_row
from pjepa.takes.source import Annotation, Source, SourceBuilder, below, take_row
from pjepa.ui.console import InputError, track
from pjepa.video.files import measured_videos

FPS = 30.0  # of all frame numbers; the recordings have 60
BEYOND = 10**10 - 1  # a frame number after every other
RowAndEnd = tuple[VideoRow | None, int]  # the row, and the first frame after those that are there
FrameSource = Callable[[str, str, int, int | None], RowAndEnd]  # of take id, sequence, first, end


def opened_frames(
    own: Assembly101Config, base: Path, sequences: Iterable[str], config: DataConfig
) -> FrameSource:
    """Return what finds a take's frames first .. end - 1 in the layout found on disk.

    `end` None: all there are.
    """
    if own.input == "video":
        return _video_frames(own, base, sequences, config)
    for folder in ("db_TSM_features/", ""):
        if inside(base, f"{folder}{own.view}/data.mdb").is_file():
            return _lmdb_frames(own, base, f"{folder}{own.view}")
    if (base / "TSM_features").is_dir():
        return _numpy_frames(own, base)
    raise InputError(
        f"{base}: no features of view {own.view!r}: expected db_TSM_features/{own.view}/data.mdb, "
        f"{own.view}/data.mdb or TSM_features/; set data.assembly101.view"
    )


def _lmdb_frames(own: Assembly101Config, base: Path, name: str) -> FrameSource:
    """TSM rows of one view in an LMDB environment."""

    def row(take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        key = f"{sequence}/{own.view}/{own.view}"
        last = last_frame(base / name, key, end or BEYOND)
        first, stop = max(1, first), 0 if last is None else last + 1
        where = locator("lmdb", below(own.path, name), f"{key}:{first}:{stop}")
        return _feature_row(take_id, where, first, stop)

    return row


def _numpy_frames(own: Assembly101Config, base: Path) -> FrameSource:
    """TSM rows of one view, an array per recording."""

    def row(take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        name = f"TSM_features/{sequence}/{own.view}/features.npy"
        file = inside(base, name)
        columns = numpy_array(file).shape[1] if file.is_file() else 0
        stop = min(columns, end or columns)
        where = locator("npy-dt", below(own.path, name), f"{first}:{stop}")
        return _feature_row(take_id, where, first, stop)

    return row


def _feature_row(take_id: str, where: str, first: int, stop: int) -> RowAndEnd:
    if first >= stop:
        return None, 0
    return shipped_row(take_id, where, FPS, (stop - first) / FPS), stop


def _video_frames(
    own: Assembly101Config, base: Path, sequences: Iterable[str], config: DataConfig
) -> FrameSource:
    """Return what finds the recordings; every take of one runs over all of it."""
    names = {
        sequence: f"{folder}{sequence}/{own.view}.mp4"
        for sequence in sequences
        for folder in ("", "videos/", "recordings/")
        if inside(base, f"{folder}{sequence}/{own.view}.mp4").is_file()
    }
    here = {sequence: base / names[sequence] for sequence in sorted(names)}
    measured = measured_videos(here, config.workers, config.max_gap_s)

    def row(take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        film = measured.get(sequence)
        if film is None or film.fault:
            return None, 0
        video = film.row(take_id, below(own.path, names[sequence]))
        return video, round(film.duration_s * FPS) + 1

    return row


COARSE = "coarse-annotations"
KINDS = ("assembly", "disassembly")
# Trained on Assembly101's train labels; one frame at a time, so without look-ahead.
TSM = FeatureInfo("TSM of Assembly101", lookahead_s=0.0, train_labels=True)


@dataclass(frozen=True)
class SplitLine:
    """One line of a split file: a recording, what happens in it, the toy."""

    kind: str
    sequence: str
    split: str
    toy: str


def assembly101_source(config: DataConfig, root: Path) -> Source:
    """Return the takes of train and val; those of test, whose labels are withheld, on request."""
    own = config.assembly101
    base = inside(root, own.path, "the data root")
    classes = read_actions(base / COARSE / "actions.csv")
    splits = ("train", "val", "test") if own.test else ("train", "val")
    streams: dict[tuple[str, str], SplitLine] = {}
    for stream in (s for split in splits for kind in KINDS for s in _streams(base, split, kind)):
        before = streams.setdefault((stream.kind, stream.sequence), stream)
        if before is not stream:
            where = f"{base / COARSE / 'coarse_splits'}: {stream.kind}_{stream.sequence}"
            raise InputError(f"{where} is in {before.split} and in {stream.split}")
    sequences = {sequence for _, sequence in streams}
    frames, builder = opened_frames(own, base, sequences, config), SourceBuilder()
    ids = {name: number for number, name in enumerate(classes.names)}
    for stream in track(list(streams.values()), "takes: read", unit="take"):
        _read_take(stream, own, frames, base, ids, builder)
    builder.drop_empty()
    return builder.source(classes, config, TSM if own.input == "tsm" else None)


def read_actions(path: Path) -> Classes:
    """Return coarse actions by action_id; none of them is background."""
    names: dict[int, str] = {}
    for row in csv_table(path, ("action_id", "action_cls"), hint="fetch the coarse annotations"):
        ident, name = row.cells["action_id"], row.cells["action_cls"]
        if not ident.isdecimal() or int(ident) in names or name in names.values() or not name:
            raise InputError(f"{row.where}: action {ident} {name!r}: expected each once")
        names[int(ident)] = name
    return Classes(in_order(names, path, "action_id"), None)


def _streams(base: Path, split: str, kind: str) -> Iterator[SplitLine]:
    """Yield the lines `{kind}_{sequence}.txt, is_shared, toy_id, toy_name` of a split file."""
    names = set()
    for where, line in file_lines(base / COARSE / "coarse_splits" / f"{split}_coarse_{kind}.txt"):
        cells = [cell.strip() for cell in line.split("\t")]
        name = cells[0].removesuffix(".txt")
        if name in names:
            raise InputError(f"{where}: {name!r} appears twice")
        if not name.startswith(f"{kind}_"):
            raise InputError(f"{where}: expected {kind}_SEQUENCE.txt, found {line!r}")
        toy = cells[3] if len(cells) > 3 else ""
        names.add(name)
        yield SplitLine(kind, name.removeprefix(f"{kind}_"), split, toy)


def _read_take(
    stream: SplitLine,
    own: Assembly101Config,
    frames: FrameSource,
    base: Path,
    ids: Mapping[str, int],
    builder: SourceBuilder,
) -> None:
    """Add one take: the frames from its first label to its last."""
    take_id = f"{stream.kind}/{stream.sequence}/{own.view}"
    what = "video" if own.input == "video" else "features"
    spans = _labels(stream, base, ids)
    long = [span for span in spans if span[0] < span[1]]
    first = min((start for start, _, _ in long), default=1)
    end = max((end for _, end, _ in long), default=None)
    row, stop = frames(take_id, stream.sequence, first, end)
    if row is None:
        builder.missing[f"no {what} of view {own.view}"].append(take_id)
        return
    if end is not None and stop < end:
        cut = f"takes end with their {what}, before their labels"
        builder.seen[cut].append(f"{take_id} ({end - stop} frames)")
    if end is not None and sum(stop - start for start, stop, _ in spans) != end - first:
        builder.seen["takes whose segments overlap or leave gaps"].append(take_id)
    builder.videos.append(row)
    builder.takes.append(
        take_row(
            take_id, "assembly101", stream.split, task=stream.toy, recording=stream.sequence,
            participant=person_of(stream.sequence), view=own.view,
        )
    )  # fmt: skip
    builder.segments += [Annotation(take_id, s / FPS, e / FPS, label) for s, e, label in spans]


def person_of(recording: str) -> str:
    """Return the person that a recording's name tells, or nothing."""
    person = re.search(r"_(\d+)-\w+_\d+_user_id", recording)
    return person.group(1) if person else ""


def _labels(stream: SplitLine, base: Path, ids: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return (start frame, end frame, label) rows; none where test labels are withheld."""
    path = inside(base / COARSE / "coarse_labels", f"{stream.kind}_{stream.sequence}.txt")
    if stream.split == "test" and not path.is_file():
        return []
    spans = []
    for where, line in file_lines(path):
        cells = [cell.strip() for cell in line.split("\t")]
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
