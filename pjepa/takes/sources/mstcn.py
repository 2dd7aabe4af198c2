"""The `mstcn` source: 50Salads, GTEA, Breakfast as MS-TCN bundles them, and FACT's custom sets.

`features/<video>.npy`, `groundTruth/<video>.txt`, `splits/{train,test}.split<fold>.bundle` and
`mapping.txt`. These sets are compared by cross-validation: run every `data.fold`, then average.
MS-TCN's archive unpacks to `data/<set>`: the set is looked for there too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from pjepa.core.runs import runs
from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, closest, file_text
from pjepa.takes.config import DataConfig, MstcnConfig
from pjepa.takes.shipped import locator, numpy_array, span_key
from pjepa.takes.source import Annotation, FoundTakes, Source, below, left_out, set_folder, take_row
from pjepa.ui.console import InputError, track

# Data sets with one label per frame and features of the same length (MS-TCN, FACT).

NAMED = 20  # files named in one error
FAR = 0.02  # share of a take by which features and labels may differ before it looks wrong


@dataclass(frozen=True)
class FolderLayout:
    """The folders and conventions of a framewise data set."""

    dataset: str
    root: Path  # the data root
    folder: str  # relative to it
    fps: float
    time_first: bool
    features: FeatureInfo
    turn: str  # advice for arrays of the other orientation
    pattern: str = ""  # named groups of a video's name: task, recording, participant, view
    group: str = "recording"
    view: str = ""  # of videos whose names do not state it

    @property
    def base(self) -> Path:
        return inside(self.root, self.folder)

    def relative(self, name: str) -> str:
        """Return the name of a file relative to the data root."""
        return below(self.folder, name)


@dataclass
class FramewiseTakes(FoundTakes):
    """Takes of a framewise data set, and what is wrong with their files."""

    far: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # why
    faults: list[str] = field(default_factory=list)


def read_lines(path: Path) -> list[str]:
    """Return stripped lines; a missing last newline and empty lines at the end are fine."""
    text = file_text(path).rstrip()
    return [line.strip() for line in text.split("\n")] if text else []


def read_mapping(path: Path, background: str | None = None) -> Classes:
    """Return classes of lines `<id> <name>`; names may hold spaces, ids run from 0."""
    names: dict[int, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        ident, name = (*line.split(None, 1), "", "")[:2]
        if not ident.isdecimal() or not name:
            raise InputError(f"{path}, line {number}: expected `<id> <name>`, found {line!r}")
        if int(ident) in names or name in names.values():
            raise InputError(f"{path}, line {number}: {line!r} appears twice")
        names[int(ident)] = name
    if not names:
        raise InputError(f"{path}: no class; expected `<id> <name>` lines")
    if sorted(names) != list(range(len(names))):
        raise InputError(f"{path}: ids {min(names, default=0)} to {max(names, default=0)} for "
                         f"{len(names)} classes; expected 0 to {len(names) - 1}")  # fmt: skip
    ordered = tuple(names[ident] for ident in range(len(names)))
    return Classes(ordered, background_id(ordered, background, path))


def background_id(names: tuple[str, ...], wanted: str | None, path: Path) -> int | None:
    """Return the background class id: the one asked for, else `background`, else None."""
    if wanted is not None and wanted not in names:
        raise InputError(f"{path}: no class {wanted!r}{closest(wanted, names)}")
    same = [name for name in names if name == wanted or (not wanted and is_background(name))]
    return names.index(same[0]) if same else None


def is_background(name: str) -> bool:
    return name.lower() in ("background", "bg")


def read_frame_labels(path: Path, ids: Mapping[str, int]) -> np.ndarray:
    """Return class ids [T] of a file with one name per line; an unknown name is an error."""
    labels = []
    for number, line in enumerate(read_lines(path), 1):
        if line not in ids:
            raise InputError(
                f"{path}, line {number}: no class {line!r} in the mapping{closest(line, ids)}"
            )
        labels.append(ids[line])
    if not labels:
        raise InputError(f"{path}: no label; expected one class name per line")
    return np.array(labels, np.int64)


def frame_segments(take_id: str, labels: np.ndarray, fps: float) -> list[Annotation]:
    """Return runs of equal labels [T] as segments in seconds; frame f stands at f / fps."""
    starts, lengths = runs(labels)
    return [
        Annotation(take_id, first / fps, (first + count) / fps, int(labels[first]))
        for first, count in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def read_split(path: Path) -> list[str]:
    """Return video names of a split file, one per line, without a trailing `.txt`.

    Breakfast's original bundles begin with a line `#bundle`.
    """
    names = [line.removesuffix(".txt") for line in read_lines(path)]
    head = int(names[:1] == ["#bundle"])
    count = Counter(names := names[head:])
    for number, name in enumerate(names, 1 + head):
        if not name or count[name] > 1:
            what = f"{name!r} appears twice" if name else "an empty line"
            raise InputError(f"{path}, line {number}: {what}; expected one video name per line")
    return names


def read_bundle(folder: Path, split: str, fold: int) -> list[str]:
    """Return video names of one split of a fold."""
    path = folder / f"{split}.split{fold}.bundle"
    if not path.is_file():
        there = sorted(file.name for file in folder.glob(f"{split}.*.bundle"))
        raise InputError(
            f"{path}: no such file; data.fold {fold} of {', '.join(there) or 'no bundle at all'}"
        )
    return read_split(path)


def framewise_source(
    layout: FolderLayout, classes: Classes, splits: Mapping[str, Iterable[str]], config: DataConfig
) -> Source:
    """Return the takes of the given splits; raise an error if two splits share a name."""
    split_of: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if name in split_of:
                raise InputError(f"{layout.base}: {name!r} is in {split_of[name]} and in {split}")
            split_of[name] = split
    ids, found = {name: number for number, name in enumerate(classes.names)}, FramewiseTakes()
    for name in track(list(split_of), "takes: read", unit="take"):
        _read_take(layout, name, split_of[name], ids, found)
    if found.faults:
        more = len(found.faults) - NAMED
        told = [*found.faults[:NAMED], *([f"and {more} more"] if more > 0 else [])]
        raise InputError("; ".join(told))
    return Source(
        found.videos,
        found.takes,
        found.segments,
        classes,
        layout.features,
        skipped={
            **left_out("no features", found.missing, config.missing),
            **left_out("unreadable features", found.unreadable, config.missing),
        },
        notes=_notes(found),
    )


def _read_take(
    layout: FolderLayout, name: str, split: str, ids: Mapping[str, int], found: FramewiseTakes
) -> None:
    """Add one take, cut to the shorter of features and labels as MS-TCN and FACT do."""
    file = inside(layout.base, f"features/{name}.npy")
    if not file.is_file():
        found.missing.append(name)
        return
    try:
        labels = read_frame_labels(inside(layout.base, f"groundTruth/{name}.txt"), ids)
    except InputError as error:  # all wrong files are named at once
        found.faults.append(str(error))
        return
    try:
        shape = numpy_array(file).shape
    except InputError as error:
        found.unreadable.append(str(error))
        return
    rows, other = shape if layout.time_first else shape[::-1]
    length = min(rows, len(labels))
    if not length:
        found.missing.append(name)
        return
    if rows != len(labels):
        found.cut.append(f"{name} ({rows} features, {len(labels)} labels)")
    if _far(rows, len(labels)):
        if not _far(other, len(labels)):
            found.faults.append(
                f"{file}: array {list(shape)} beside {len(labels)} labels: time stands "
                f"{'last' if layout.time_first else 'first'}; {layout.turn}"
            )
        found.far.append(name)
    kind = "npy" if layout.time_first else "npy-dt"
    where = locator(kind, layout.relative(f"features/{name}.npy"), span_key(0, length))
    found.videos.append(
        VideoRow(name, None, layout.fps, length / layout.fps, features=where, root="data")
    )
    found.takes.append(_named_take(layout, name, split, found))
    found.segments += frame_segments(name, labels[:length], layout.fps)


def _far(rows: int, labels: int) -> bool:
    return abs(rows - labels) > max(1, FAR * min(rows, labels))


def _named_take(
    layout: FolderLayout, name: str, split: str, found: FramewiseTakes
) -> dict[str, str]:
    match = re.fullmatch(layout.pattern, name) if layout.pattern else None
    if match is None and layout.pattern:
        found.unnamed.append(name)
    parts = {key: value for key, value in (match.groupdict() if match else {}).items() if value}
    recording = parts.get("recording", name)
    parts = {"view": layout.view, **parts, "recording": recording}
    group = parts.get("participant", recording) if layout.group == "participant" else recording
    return take_row(name, layout.dataset, split, **parts, group=group)


def _notes(found: FramewiseTakes) -> list[Note]:
    kinds = {
        "takes cut to the shorter of features and labels": found.cut,
        f"takes whose features and labels differ by more than {FAR:.0%} (another frame rate?)": (
            found.far
        ),
        "takes whose names tell no participant, each a group of its own": found.unnamed,
    }
    return [Note(f"{len(names)} {kind}", tuple(names)) for kind, names in kinds.items() if names]


WINDOW = 10  # frames of future in MS-TCN's I3D features: 21 frames centred on each


@dataclass(frozen=True)
class Known:
    """Facts about a public set that are not in its files."""

    fps: float
    pattern: str
    group: Literal["recording", "participant"] = "participant"
    time_first: bool = False
    name: str = "I3D, RGB and flow"
    view: str = ""


KNOWN = {
    "50salads": Known(30.0, r"rgb-(?P<participant>\d+)-\d+", view="top"),
    # A fold tests one of four people: groups are recordings, or there would be one to resample.
    "gtea": Known(15.0, r"(?P<participant>S\d+)_(?P<task>\w+)_C\d+", "recording", view="ego"),
    "breakfast": Known(
        15.0, r"(?P<participant>P\d+)_(?P<view>[a-z]+\d*)_(?P<recording>P\d+_(?P<task>\w+))"
    ),
}


def known_set(own: MstcnConfig) -> Known | None:
    """Return the known conventions of the set with this name."""
    return KNOWN.get(own.dataset.rsplit("/", 1)[-1].lower())


def mstcn_source(own: MstcnConfig, config: DataConfig, root: Path) -> Source:
    """Return the takes of one fold: its train bundle trains, its test bundle is reported."""
    layout = _layout(own, root)
    classes = read_mapping(layout.base / "mapping.txt", own.background)
    splits = {
        split: read_bundle(layout.base / "splits", split, config.fold)
        for split in ("train", "test")
    }
    return framewise_source(layout, classes, splits, config)


def _layout(own: MstcnConfig, root: Path) -> FolderLayout:
    """Return the set's folder and conventions: those given, else those of the set's name."""
    known = known_set(own)
    fps = own.fps or (known.fps if known else None)
    if fps is None:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r} is not one of {', '.join(KNOWN)}: set "
            "data.mstcn.fps, the rate of its features"
        )
    ahead = own.lookahead_s
    if ahead is None and known is None:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r}: set data.mstcn.lookahead_s, how many seconds "
            "ahead a feature has seen (half its window; 0 for single frames)"
        )
    time_first = own.time_first
    if time_first is None:
        time_first = known.time_first if known else True
    name = f"{known.name if known else 'features'} of {own.dataset}"
    info = FeatureInfo(name, WINDOW / fps if ahead is None else ahead, own.train_labels)
    return FolderLayout(
        dataset=own.dataset,
        root=root,
        folder=set_folder(own, root),
        fps=fps,
        time_first=time_first,
        features=info,
        turn=f"set data.mstcn.time_first: {str(not time_first).lower()}",
        pattern=known.pattern if known else "",
        group=own.group or (known.group if known else "recording"),
        view=known.view if known else "",
    )
