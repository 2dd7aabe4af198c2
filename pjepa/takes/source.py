"""What every data source hands over, and the tables it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from pjepa.paths import BOUNDARIES_TABLE, CLASSES, SEGMENTS_TABLE, TAKES_TABLE, VIDEOS_TABLE
from pjepa.takes.holdout import draw_holdout
from pjepa.takes.manifest import (
    BOUNDARIES,
    SEGMENTS,
    TAKES,
    Classes,
    VideoRow,
    write_classes,
    write_table,
    write_videos,
)


@dataclass(frozen=True)
class Annotation:
    """One labelled segment; the end is exclusive."""

    take_id: str
    start_s: float
    end_s: float
    label: int


@dataclass(frozen=True)
class Source:
    """Takes, their videos, and what is annotated in them."""

    videos: list[VideoRow]
    takes: list[dict[str, Any]]
    segments: list[Annotation]
    classes: Classes


def write_source(source: Source, holdout: float, seed: int) -> None:
    """Writes data/takes/: labels and splits apart from what extraction may read."""
    segments = _numbered(source.segments)
    takes = pd.DataFrame(source.takes)
    held = draw_holdout(takes, pd.DataFrame(segments), holdout, seed)
    rows = [
        {**take, "holdout": take["split"] == "train" and take["group"] in held}
        for take in source.takes
    ]
    write_videos(VIDEOS_TABLE, source.videos)
    write_table(BOUNDARIES_TABLE, segments, BOUNDARIES)
    write_table(TAKES_TABLE, rows, TAKES)
    write_table(SEGMENTS_TABLE, segments, SEGMENTS)
    write_classes(CLASSES, source.classes)


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
