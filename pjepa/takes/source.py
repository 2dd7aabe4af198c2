"""The common form of every data source, and the tables written from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from pjepa.core.places import (
    BOUNDARIES_FILE,
    CLASSES_FILE,
    SEGMENTS_FILE,
    TAKES_FILE,
    VIDEOS_FILE,
)
from pjepa.core.tables import (
    BOUNDARIES,
    SEGMENTS,
    SPLITS,
    TAKES,
    Classes,
    FeatureInfo,
    VideoRow,
    write_classes,
    write_table,
    write_videos,
)
from pjepa.takes.annotations.notes import SHOWN, Note, gathered
from pjepa.takes.holdout import draw_holdout
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say

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


def write_source(
    source: Source, folder: Path, holdout: float, seed: int, max_gap_s: float | None = None
) -> None:
    """Write the tables of takes: labels and splits apart from what extraction may read."""
    source = checked_source(source)
    segments = _numbered(source.segments)
    held = held_groups(source, holdout, seed)
    rows = [
        {**take, "holdout": take["split"] == "train" and take["group"] in held}
        for take in source.takes
    ]
    write_videos(folder / VIDEOS_FILE, source.videos, source.features, max_gap_s)
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
