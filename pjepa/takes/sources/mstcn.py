"""The `mstcn` source: 50Salads, GTEA, Breakfast as MS-TCN bundles them, and FACT's custom sets.

`features/<video>.npy`, `groundTruth/<video>.txt`, `splits/{train,test}.split<fold>.bundle` and
`mapping.txt`. These sets are compared by cross-validation: run every `data.fold`, then average.
MS-TCN's archive unpacks to `data/<set>`: the set is looked for there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pjepa.core.tables import Classes, FeatureInfo
from pjepa.storage.roots import inside
from pjepa.takes.annotations.rows import frame_runs
from pjepa.takes.annotations.text_files import closest, file_lines, in_order
from pjepa.takes.config import DataConfig, MstcnConfig
from pjepa.takes.shipped import locator, numpy_array, shipped_row
from pjepa.takes.source import Annotation, Source, SourceBuilder, below, set_folder, take_row
from pjepa.ui.console import InputError, track

# Data sets with one label per frame and features of the same length (MS-TCN, FACT).

NAMED = 20  # files named in one error
FAR = 0.02  # share of a take by which features and labels may differ before it looks wrong
CUT = "takes cut to the shorter of features and labels"
DIFFERENT = f"takes whose features and labels differ by more than {FAR:.0%} (another frame rate?)"
UNNAMED = "takes whose names tell no participant, each a group of its own"


@dataclass(frozen=True)
class Known:
    """Facts about a public set that are not in its files."""

    fps: float | None
    pattern: str = ""  # named groups of a video's name: task, recording, participant, view
    group: Literal["recording", "participant"] = "participant"
    time_first: bool = False
    name: str = "I3D, RGB and flow"
    view: str = ""  # of videos whose names do not state it


OTHER = Known(None, group="recording", time_first=True, name="features")  # FACT's custom sets
KNOWN = {
    "50salads": Known(30.0, r"rgb-(?P<participant>\d+)-\d+", view="top"),
    # A fold tests one of four people: groups are recordings, or there would be one to resample.
    "gtea": Known(15.0, r"(?P<participant>S\d+)_(?P<task>\w+)_C\d+", "recording", view="ego"),
    "breakfast": Known(
        15.0, r"(?P<participant>P\d+)_(?P<view>[a-z]+\d*)_(?P<recording>P\d+_(?P<task>\w+))"
    ),
}


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
    known: Known

    @property
    def base(self) -> Path:
        return inside(self.root, self.folder)


def read_mapping(path: Path, background: str | None = None) -> Classes:
    """Return classes of lines `<id> <name>`; names may hold spaces, ids run from 0."""
    names: dict[int, str] = {}
    for where, line in file_lines(path):
        ident, name = (*line.split(None, 1), "", "")[:2]
        if not ident.isdecimal() or not name:
            raise InputError(f"{where}: expected `<id> <name>`, found {line!r}")
        if int(ident) in names or name in names.values():
            raise InputError(f"{where}: {line!r} appears twice")
        names[int(ident)] = name
    ordered = in_order(names, path, "ids of lines `<id> <name>`")
    return Classes(ordered, background_id(ordered, background, path))


def background_id(names: tuple[str, ...], name: str | None, path: Path) -> int | None:
    """Return the background class id: the one asked for, else `background`, else None."""
    if name is None:
        usual = [n for n in names if n.lower() in ("background", "bg")]
        return names.index(usual[0]) if usual else None
    if name not in names:
        raise InputError(f"{path}: no class {name!r}{closest(name, names)}")
    return names.index(name)


def frame_segments(path: Path, ids: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Return (first frame, end frame, class id) of the runs of a file with one name per line."""
    segments = []
    for run in frame_runs(path):
        if run.label not in ids:
            hint = closest(run.label, ids)
            raise InputError(f"{run.where}: no class {run.label!r} in the mapping{hint}")
        segments.append((run.first, run.stop, ids[run.label]))
    return segments


def read_split(path: Path) -> list[str]:
    """Return video names of a split file, one per line, without a trailing `.txt`.

    Breakfast's original bundles begin with a line `#bundle`.
    """
    names: dict[str, None] = {}
    for where, line in file_lines(path):
        name = line.removesuffix(".txt")
        if name == "#bundle" and not names:
            continue
        if not name or name in names:
            what = f"{name!r} appears twice" if name else "an empty line"
            raise InputError(f"{where}: {what}; expected one video name per line")
        names[name] = None
    return list(names)


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
    ids, builder = {name: number for number, name in enumerate(classes.names)}, SourceBuilder()
    faults: list[str] = []
    for name, split in track(list(split_of.items()), "takes: read", unit="take"):
        try:
            _read_take(layout, name, split, ids, builder)
        except InputError as error:  # all wrong files are named at once
            faults.append(str(error))
    if faults:
        more = [f"and {len(faults) - NAMED} more"] if len(faults) > NAMED else []
        raise InputError("; ".join([*faults[:NAMED], *more]))
    return builder.source(classes, config, layout.features)


def _read_take(
    layout: FolderLayout, name: str, split: str, ids: Mapping[str, int], builder: SourceBuilder
) -> None:
    """Add one take, cut to the shorter of features and labels as MS-TCN and FACT do."""
    file = inside(layout.base, f"features/{name}.npy")
    if not file.is_file():
        builder.missing["no features"].append(name)
        return
    segments = frame_segments(inside(layout.base, f"groundTruth/{name}.txt"), ids)
    try:
        shape = numpy_array(file).shape
    except InputError as error:
        builder.missing["unreadable features"].append(str(error))
        return
    rows, other = shape if layout.time_first else shape[::-1]
    labels = segments[-1][1]
    length = min(rows, labels)
    if not length:
        builder.missing["no features"].append(name)
        return
    if rows != labels:
        builder.seen[CUT].append(f"{name} ({rows} features, {labels} labels)")
    if _far(rows, labels):
        if not _far(other, labels):
            raise InputError(
                f"{file}: array {list(shape)} beside {labels} labels: time stands "
                f"{'last' if layout.time_first else 'first'}; {layout.turn}"
            )
        builder.seen[DIFFERENT].append(name)
    kind = "npy" if layout.time_first else "npy-dt"
    where = locator(kind, below(layout.folder, f"features/{name}.npy"), f"0:{length}")
    fps = layout.fps
    builder.videos.append(shipped_row(name, where, fps, length / fps))
    builder.takes.append(_named_take(layout, name, split, builder))
    builder.segments += [
        Annotation(name, first / fps, min(stop, length) / fps, label)
        for first, stop, label in segments
        if first < length
    ]


def _far(rows: int, labels: int) -> bool:
    return abs(rows - labels) > max(1, FAR * min(rows, labels))


def _named_take(
    layout: FolderLayout, name: str, split: str, builder: SourceBuilder
) -> dict[str, str]:
    known = layout.known
    match = re.fullmatch(known.pattern, name)
    if match is None and known.pattern:
        builder.seen[UNNAMED].append(name)
    facts = {key: value for key, value in (match.groupdict() if match else {}).items() if value}
    facts = {"view": known.view, "recording": name, **facts}
    group = facts.get(known.group, facts["recording"])
    return take_row(name, layout.dataset, split, **facts, group=group)


WINDOW = 10  # frames of future in MS-TCN's I3D features: 21 frames centred on each


def known_set(own: MstcnConfig) -> Known | None:
    """Return the known conventions of the set with this name."""
    return KNOWN.get(own.dataset.rsplit("/", 1)[-1].lower())


def mstcn_source(config: DataConfig, root: Path) -> Source:
    """Return the takes of one fold: its train bundle trains, its test bundle is reported."""
    layout = _layout(config.mstcn, root)
    classes = read_mapping(layout.base / "mapping.txt", config.mstcn.background)
    splits = {
        split: read_bundle(layout.base / "splits", split, config.fold)
        for split in ("train", "test")
    }
    return framewise_source(layout, classes, splits, config)


def _layout(own: MstcnConfig, root: Path) -> FolderLayout:
    """Return the set's folder and conventions: those given, else those of the set's name."""
    known = known_set(own) or OTHER
    fps, ahead = own.fps or known.fps, own.lookahead_s
    if fps is None:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r} is not one of {', '.join(KNOWN)}: set "
            "data.mstcn.fps, the rate of its features"
        )
    if ahead is None and known is OTHER:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r}: set data.mstcn.lookahead_s, how many seconds "
            "ahead a feature has seen (half its window; 0 for single frames)"
        )
    time_first = known.time_first if own.time_first is None else own.time_first
    seen = WINDOW / fps if ahead is None else ahead
    info = FeatureInfo(f"{known.name} of {own.dataset}", seen, own.train_labels)
    turn = f"set data.mstcn.time_first: {str(not time_first).lower()}"
    folder = set_folder(own, root)
    return FolderLayout(own.dataset, root, folder, fps, time_first, info, turn, known)
