"""What every data source hands over, and the tables it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from pjepa.errors import InputError
from pjepa.paths import BOUNDARIES_TABLE, CLASSES, SEGMENTS_TABLE, TAKES_TABLE, VIDEOS_TABLE
from pjepa.progress import say
from pjepa.takes.holdout import draw_holdout
from pjepa.takes.manifest import (
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
    takes: list[dict[str, Any]]
    segments: list[Annotation]
    classes: Classes
    features: FeatureInfo | None = None  # of data sets that ship features
    skipped: dict[str, list[str]] = field(default_factory=dict)  # why: the names left out
    notes: list[str] = field(default_factory=list)  # what was cut or drawn, what looks wrong


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
    """A row of takes.parquet: a take is its own recording, and a recording a group, unless said."""
    recording = recording or take_id
    return {
        "take_id": take_id, "dataset": dataset, "split": split, "task": task,
        "recording": recording, "participant": participant, "view": view,
        "group": group or recording,
    }  # fmt: skip


def late_notes(segments: list[Annotation], ends: Mapping[str, float]) -> list[str]:
    """What to say about segments that end after their video, of whose takes `ends` has the ends."""
    late = [s.take_id for s in segments if s.end_s > ends[s.take_id] + LATE_S]
    names = ", ".join(dict.fromkeys(late))
    return [f"{len(late)} segments end after their video (wrong file?): {names}"] if late else []


def left_out(why: str, names: list[str], missing: Literal["fail", "skip"]) -> dict[str, list[str]]:
    """The takes left out, by reason; an error unless `data.missing` allows it."""
    if names and missing == "fail":
        some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise InputError(
            f"{len(names)} takes with {why} ({some}); fetch them, or set data.missing=skip to go "
            "on without them"
        )
    return {why: names} if names else {}


def checked_source(source: Source) -> Source:
    """The source itself; one that no stage could work with is refused."""
    ids = [row.take_id for row in source.videos]
    if not ids:
        raise InputError("no take is left; `pjepa data check` lists what is missing")
    twice = {take for take in ids if ids.count(take) > 1} if len(set(ids)) < len(ids) else set()
    if twice:
        raise InputError(f"take {min(twice)!r} stands twice in the source; names must differ")
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


def write_source(source: Source, holdout: float, seed: int) -> None:
    """Writes data/takes/: labels and splits apart from what extraction may read."""
    source = checked_source(source)
    segments = _numbered(source.segments)
    takes = pd.DataFrame(source.takes)
    held = draw_holdout(takes, pd.DataFrame(segments, columns=SEGMENTS.names), holdout, seed)
    rows = [
        {**take, "holdout": take["split"] == "train" and take["group"] in held}
        for take in source.takes
    ]
    write_videos(VIDEOS_TABLE, source.videos, source.features)
    write_table(BOUNDARIES_TABLE, segments, BOUNDARIES)
    write_table(TAKES_TABLE, rows, TAKES)
    write_table(SEGMENTS_TABLE, segments, SEGMENTS)
    write_classes(CLASSES, source.classes)
    for why, names in source.skipped.items():
        say(f"takes: {len(names)} left out with {why}: {', '.join(names)}")
    for line in source.notes:
        say(f"takes: {line}")


def _numbered(segments: list[Annotation]) -> list[dict[str, Any]]:
    """Segments in time order per take, numbered from 0; `tokens.overlap` decides on overlaps."""
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
