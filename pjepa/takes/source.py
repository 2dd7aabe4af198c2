"""The common form of every data source, and the tables written from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from pjepa.core.tables import (
    BOUNDARIES,
    BOUNDARIES_FILE,
    CLASSES_FILE,
    SEGMENTS,
    SEGMENTS_FILE,
    SPLITS,
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
from pjepa.takes.annotations.text_files import SHOWN, CsvRow, Note, closest, csv_table, gathered
from pjepa.takes.config import DataConfig, MstcnConfig
from pjepa.ui.console import InputError, say

# Held-out train groups: drawn once, for every choice that must not see val or test.


def draw_holdout(takes: pd.DataFrame, segments: pd.DataFrame, share: float, seed: int) -> set[str]:
    """Return about `share` of the train groups such that the rest still covers every class."""
    return drawn_groups(takes, segments, share, [seed, 0x401D])


def drawn_groups(
    takes: pd.DataFrame, segments: pd.DataFrame, share: float, seed: Sequence[int]
) -> set[str]:
    """Return about `share` of the train groups (recordings or participants, never single takes)."""
    train = takes[takes["split"] == "train"]
    group_of = dict(zip(train["take_id"], train["group"], strict=True))
    labelled = segments[segments["take_id"].isin(group_of)]
    classes: dict[str, set[int]] = {group: set() for group in train["group"]}
    for take_id, label in zip(labelled["take_id"], labelled["label"], strict=True):
        classes[group_of[take_id]].add(int(label))
    groups = sorted(classes)
    wanted = max(1, round(share * len(groups))) if len(groups) > 1 else 0
    return _covering_draw(groups, classes, wanted, np.random.default_rng(list(seed)))


def _covering_draw(
    groups: list[str], classes: dict[str, set[int]], wanted: int, rng: np.random.Generator
) -> set[str]:
    """Return groups in random order, chosen while another group still covers each class."""
    count: dict[int, int] = {}
    for shown in classes.values():
        for label in shown:
            count[label] = count.get(label, 0) + 1
    held: set[str] = set()
    for place in rng.permutation(len(groups)):
        shown = classes[groups[place]]
        if len(held) < wanted and all(count[label] > 1 for label in shown):
            held.add(groups[place])
            for label in shown:
                count[label] -= 1
    return held


LATE_S = 1.0  # a segment may end this long after its video


@dataclass(frozen=True)
class Annotation:
    """One labelled segment; the end is exclusive."""

    take_id: str
    start_s: float
    end_s: float
    label: int


@dataclass
class FoundTakes:
    """What is collected while reading takes one by one."""

    videos: list[VideoRow] = field(default_factory=list)
    takes: list[dict[str, Any]] = field(default_factory=list)
    segments: list[Annotation] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Source:
    """Takes, their videos or features, and what is annotated in them."""

    videos: list[VideoRow]
    takes: list[dict[str, Any]]
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


def late_notes(segments: list[Annotation], ends: Mapping[str, float]) -> list[Note]:
    """Return notes on segments that end after their video; `ends` are the ends by take."""
    late = [s.take_id for s in segments if s.end_s > ends[s.take_id] + LATE_S]
    told = f"{len(late)} segments end after their video (wrong file?)"
    return [Note(told, tuple(dict.fromkeys(late)))] if late else []


def lasting(segments: list[Annotation]) -> tuple[list[Annotation], list[Note]]:
    """Return the segments with a duration, and notes on those without."""
    kept = [segment for segment in segments if segment.start_s < segment.end_s]
    lost = [segment.take_id for segment in segments if segment.start_s >= segment.end_s]
    told = f"{len(lost)} segments of no length left out"
    return kept, [Note(told, tuple(dict.fromkeys(lost)))] if lost else []


def left_out(why: str, names: list[str], missing: Literal["fail", "skip"]) -> dict[str, list[str]]:
    """Return the takes left out, by reason; raise an error unless `data.missing` allows it."""
    if names and missing == "fail":
        some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise InputError(
            f"{len(names)} takes with {why} ({some}); fetch them, or set data.missing=skip to "
            "continue without them"
        )
    return {why: names} if names else {}


def checked_source(source: Source) -> Source:
    """Return the source itself; raise an error if no stage could use it."""
    ids = [row.take_id for row in source.videos]
    if not ids:
        lost = [Note(f"{len(n)} with {why}", tuple(n)) for why, n in source.skipped.items()]
        told = "; ".join(note.line(SHOWN) for note in lost) or "the source lists none"
        raise InputError(
            f"no take is left: {told}; fetch them, or check the data root and the paths"
        )
    twice = {take for take in ids if ids.count(take) > 1} if len(set(ids)) < len(ids) else set()
    if twice:
        raise InputError(f"duplicate take id {min(twice)!r} in the source; names must differ")
    if ids != [take["take_id"] for take in source.takes]:
        raise InputError("the source's videos and takes are not the same")
    for row in source.videos:
        if (row.features is None) == (row.video is None) or (
            (row.features is None) != (source.features is None)
        ):
            raise InputError(f"take {row.take_id}: expected a video or features, as all others")
    for take in source.takes:
        if take["split"] not in SPLITS:
            raise InputError(
                f"take {take['take_id']}: split {take['split']!r}; allowed: {', '.join(SPLITS)}"
            )
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
    for why, names in source.skipped.items():
        say(f"takes: {Note(f'{len(names)} left out with {why}', tuple(names)).line(SHOWN)}")
    for note in gathered(source.notes):
        say(f"takes: {note.line(SHOWN)}")


def held_groups(source: Source, share: float, seed: int) -> set[str]:
    """Return the train groups that are held out."""
    labels = [(segment.take_id, segment.label) for segment in source.segments]
    segments = pd.DataFrame(labels, columns=["take_id", "label"])
    return draw_holdout(pd.DataFrame(source.takes), segments, share, seed)


def _numbered(segments: list[Annotation]) -> list[dict[str, Any]]:
    """Return segments in time order per take, numbered from 0.

    Overlaps are kept: `tokens.overlap` decides on them.
    """
    rows: list[dict[str, Any]] = []
    by_take: dict[str, list[Annotation]] = {}
    for segment in segments:
        by_take.setdefault(segment.take_id, []).append(segment)
    for take_id, part in by_take.items():
        part.sort(key=lambda segment: (segment.start_s, segment.end_s))
        for number, segment in enumerate(part):
            rows.append(
                {
                    "take_id": take_id,
                    "segment": number,
                    "start_s": segment.start_s,
                    "end_s": segment.end_s,
                    "label": segment.label,
                }
            )
    return rows


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
TakeRows = list[dict[str, Any]]


def regrouped(takes: TakeRows, path: Path) -> tuple[TakeRows, list[Note]]:
    """Return the takes with the groups of the file, and notes for the user."""
    rows = _rows(path)
    names = {str(take[key]) for take in takes for key in ("take_id", "recording")}
    for name, row in rows.items():
        if name not in names:
            raise InputError(f"{row.where}: no take or recording {name!r}{closest(name, names)}")
    found = [_regrouped(take, rows) for take in takes]
    left = [take["take_id"] for take in takes if not _row_of(take, rows)]
    notes = [Note(f"{path.name}: {len(takes) - len(left)} takes in {_groups(found)} groups")]
    if left:
        told = f"{path.name}: has no row for {len(left)} takes, which keep their groups"
        notes.append(Note(told, tuple(left)))
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
    table = csv_table(path, ("take",), optional=FIELDS, hint="data.groups names it")
    if not set(FIELDS) & set(table.columns):
        raise InputError(f"{path}, line 1: expected one of the columns {', '.join(FIELDS)}")
    rows: dict[str, CsvRow] = {}
    for row in table.rows:
        name = row.cells["take"]
        if not name or not any(row.cells.get(field) for field in FIELDS):
            raise InputError(f"{row.where}: expected a take and its group, found {row.cells}")
        if name in rows:
            raise InputError(f"{row.where}: {name!r} appears twice (also {rows[name].where})")
        rows[name] = row
    return rows


def _row_of(take: dict[str, Any], rows: dict[str, CsvRow]) -> CsvRow | None:
    """Return the row of the take itself, else of its recording."""
    return rows.get(take["take_id"]) or rows.get(take["recording"])


def _regrouped(take: dict[str, Any], rows: dict[str, CsvRow]) -> dict[str, Any]:
    row = _row_of(take, rows)
    if row is None:
        return take
    given = {field: row.cells[field] for field in FIELDS if row.cells.get(field)}
    return {**take, "group": next(given[field] for field in FIELDS if field in given), **given}


def _groups(takes: TakeRows) -> int:
    return len({take["group"] for take in takes})
