"""The common form of every data source, and the tables written from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.tables import (
    BOUNDARIES,
    BOUNDARIES_FILE,
    CLASSES_FILE,
    SEGMENTS,
    SEGMENTS_FILE,
    TAKES,
    TAKES_FILE,
    VIDEOS_FILE,
    Classes,
    FeatureInfo,
    VideoRow,
    write_classes,
    write_table,
    write_videos,
)
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import (
    SHOWN,
    CsvRow,
    Note,
    closest,
    counted,
    csv_table,
    gathered,
)
from pjepa.takes.config import DataConfig, MstcnConfig
from pjepa.ui.console import InputError, say

TakeRows = list[dict[str, Any]]
HOLDOUT = 0x401D  # what a random stream is for
LATE_S = 1.0  # a segment may end this long after its video


@dataclass(frozen=True)
class Annotation:
    """One labelled segment; the end is exclusive."""

    take_id: str
    start_s: float
    end_s: float
    label: int


@dataclass(frozen=True)
class Source:
    """Takes, their videos or features, and what is annotated in them."""

    videos: list[VideoRow]
    takes: TakeRows
    segments: list[Annotation]
    classes: Classes
    features: FeatureInfo | None = None  # of data sets that ship features
    skipped: dict[str, list[str]] = field(default_factory=dict)  # why: the names left out
    notes: list[Note] = field(default_factory=list)  # parts cut or drawn, and anything suspicious
    listed: frozenset[str] = frozenset()  # labels that own annotation files list


def take_row(
    take_id: str,
    dataset: str,
    split: str,
    *,
    task: str = "",
    recording: str = "",
    participant: str = "",
    view: str = "",
    group: str = "",
) -> dict[str, Any]:
    """Return a row of takes.parquet.

    By default a take is its own recording, and a recording is a group.
    """
    recording = recording or take_id
    return {
        "take_id": take_id, "dataset": dataset, "split": split, "task": task,
        "recording": recording, "participant": participant, "view": view,
        "group": group or recording,
    }  # fmt: skip


@dataclass
class SourceBuilder:
    """What is collected while reading takes one by one."""

    videos: list[VideoRow] = field(default_factory=list)
    takes: TakeRows = field(default_factory=list)
    segments: list[Annotation] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by reason
    seen: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # worth a note

    def drop_empty(self) -> None:
        """Leave out the segments of no length."""
        what = "segments of no length left out"
        self.seen[what] += [s.take_id for s in self.segments if s.start_s >= s.end_s]
        self.segments = [s for s in self.segments if s.start_s < s.end_s]

    def note_late(self) -> None:
        """Note the segments that end after their video."""
        ends = {row.take_id: row.duration_s + LATE_S for row in self.videos}
        late = [s.take_id for s in self.segments if s.end_s > ends[s.take_id]]
        self.seen["segments end after their video (wrong file?)"] += late

    def source(
        self, classes: Classes, config: DataConfig, features: FeatureInfo | None = None
    ) -> Source:
        """Return what was collected; raise an error for missing takes unless they may be."""
        refuse_missing(self.missing, config)
        skipped = {why: names for why, names in self.missing.items() if names}
        notes = [note for what, names in self.seen.items() for note in counted(names, what)]
        return Source(self.videos, self.takes, self.segments, classes, features, skipped, notes)


def refuse_missing(missing: Mapping[str, list[str]], config: DataConfig) -> None:
    """Raise an error for takes that are left out, by reason, unless `data.missing` allows it."""
    for why, names in missing.items():
        if names and config.missing == "fail":
            some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            raise InputError(
                f"{len(names)} takes with {why} ({some}); fetch them, or set data.missing=skip to "
                "continue without them"
            )


def checked_source(source: Source) -> Source:
    """Return the source itself; raise an error if no stage could use it."""
    ids = [row.take_id for row in source.videos]
    if not ids:
        lost = [n for why, names in source.skipped.items() for n in counted(names, f"with {why}")]
        reasons = "; ".join(note.line(SHOWN) for note in lost) or "the source lists none"
        raise InputError(
            f"no take is left: {reasons}; fetch them, or check the data root and the paths"
        )
    twice = [take for take, count in Counter(ids).items() if count > 1]
    if twice:
        raise InputError(f"duplicate take id {min(twice)!r} in the source; names must differ")
    return source


def write_source(source: Source, folder: Path, holdout: float, seed: int) -> None:
    """Write the tables of takes: labels and splits apart from what extraction may read."""
    source = checked_source(source)
    segments = _numbered(source.segments)
    held = held_groups(source, holdout, seed)
    rows = [
        {**take, "holdout": take["split"] == "train" and take["group"] in held}
        for take in source.takes
    ]
    write_videos(folder / VIDEOS_FILE, source.videos, source.features)
    write_table(folder / BOUNDARIES_FILE, segments, BOUNDARIES)
    write_table(folder / TAKES_FILE, rows, TAKES)
    write_table(folder / SEGMENTS_FILE, segments, SEGMENTS)
    write_classes(folder / CLASSES_FILE, source.classes)
    skipped = [n for why, names in source.skipped.items()
               for n in counted(names, f"left out with {why}")]  # fmt: skip
    for note in [*skipped, *gathered(source.notes)]:
        say(f"takes: {note.line(SHOWN)}")


def held_groups(source: Source, share: float, seed: int) -> set[str]:
    """Return the train groups held out from every choice that must not see val or test."""
    return drawn_groups(source.takes, source.segments, share, [seed, HOLDOUT])


def drawn_groups(
    takes: TakeRows, segments: Sequence[Annotation], share: float, seed: Sequence[int]
) -> set[str]:
    """Return about `share` of the train groups, whole ones, drawn at random.

    The rest still covers every class.
    """
    group_of = {take["take_id"]: take["group"] for take in takes if take["split"] == "train"}
    classes: dict[str, set[int]] = {group: set() for group in group_of.values()}
    for segment in segments:
        if segment.take_id in group_of:
            classes[group_of[segment.take_id]].add(segment.label)
    groups = sorted(classes)
    most = max(1, round(share * len(groups))) if len(groups) > 1 else 0
    count = Counter(label for labels in classes.values() for label in labels)
    drawn: set[str] = set()
    for place in np.random.default_rng(list(seed)).permutation(len(groups)):
        labels = classes[groups[place]]
        if len(drawn) < most and all(count[label] > 1 for label in labels):
            drawn.add(groups[place])
            count.subtract(labels)
    return drawn


def _numbered(segments: list[Annotation]) -> list[dict[str, Any]]:
    """Return segments in time order per take, numbered from 0.

    Overlaps are kept: `tokens.overlap` decides on them.
    """
    by_take: dict[str, list[Annotation]] = {}
    for segment in segments:
        by_take.setdefault(segment.take_id, []).append(segment)
    return [
        {"segment": number, **asdict(segment)}
        for mine in by_take.values()
        for number, segment in enumerate(sorted(mine, key=lambda s: (s.start_s, s.end_s)))
    ]


# Folders of sources below the data root.


def below(folder: str, name: str) -> str:
    """Return a name below a source's folder, relative to the data root."""
    return name if folder == "." else f"{folder}/{name}"


def set_folder(own: MstcnConfig, root: Path) -> str:
    """Return the set's folder relative to the data root: below `path`, or below `path`/data."""
    places = [below(own.path, place) for place in (own.dataset, f"data/{own.dataset}")]
    found = [place for place in places if inside(root, place, "the data root").is_dir()]
    if not found:
        raise InputError(
            f"{root}: neither {' nor '.join(places)} in it; set data.mstcn.path to the folder with "
            f"{own.dataset}, and PJEPA_DATA_ROOT or data_root in local.yaml"
        )
    return found[0]


# Groups given by the user: a CSV of what takes have in common (the same surgeon, say).

FIELDS = ("group", "participant", "recording")


def regrouped(takes: TakeRows, path: Path) -> tuple[TakeRows, list[Note]]:
    """Return the takes with the groups of the file, and notes for the user."""
    rows = _rows(path)
    names = {str(take[key]) for take in takes for key in ("take_id", "recording")}
    for name, row in rows.items():
        if name not in names:
            raise InputError(f"{row.where}: no take or recording {name!r}{closest(name, names)}")
    found, left = [], []
    for take in takes:
        own = rows.get(take["take_id"]) or rows.get(take["recording"])
        given = {name: own.cells[name] for name in FIELDS if own and own.cells.get(name)}
        group = next(iter(given.values()), take["group"])
        found.append({**take, "group": group, **given})
        left += [] if own else [take["take_id"]]
    groups = len({take["group"] for take in found})
    notes = [Note(f"{path.name}: {len(takes) - len(left)} takes in {groups} groups")]
    if left:
        text = f"{path.name}: has no row for {len(left)} takes, which keep their groups"
        notes.append(Note(text, tuple(left)))
    return found, notes


def groups_file(config: DataConfig, root: Path) -> Path:
    """Return the file that `data.groups` names: in the set's own folder, else in the source's."""
    folder = inside(root, "." if config.path is None else config.path, "the data root")
    places = [folder]
    if config.source == "mstcn":  # whose folder may hold several sets
        places.insert(0, root / set_folder(config.mstcn, root))
    files = [inside(place, str(config.groups), "the source's folder") for place in places]
    return next((file for file in files if file.is_file()), files[0])


def _rows(path: Path) -> dict[str, CsvRow]:
    rows: dict[str, CsvRow] = {}
    for row in csv_table(path, ("take",), optional=FIELDS, hint="data.groups names it"):
        if not set(FIELDS) & set(row.cells):
            raise InputError(f"{path}, line 1: expected one of the columns {', '.join(FIELDS)}")
        name = row.cells["take"]
        if not name or not any(row.cells.get(field) for field in FIELDS):
            raise InputError(f"{row.where}: expected a take and its group, found {row.cells}")
        if name in rows:
            raise InputError(f"{row.where}: {name!r} appears twice (also {rows[name].where})")
        rows[name] = row
    return rows
