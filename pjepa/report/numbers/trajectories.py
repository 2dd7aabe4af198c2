"""The supplement's feature-space analysis: trajectory diagnostics and the progress profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pjepa.core.runs import runs
from pjepa.metrics.bootstrap import Interval, median_interval
from pjepa.metrics.trajectory import (
    binned_progress,
    progress,
    segment_times,
    segment_vectors,
    trajectory,
)
from pjepa.report.config import ReportConfig
from pjepa.streams.store import StreamReader

# Medians over EgoProceL validation videos, I3D features: raw, P-JEPA (paper, supplement).
PAPER = {
    "straightness": (0.0589, 0.0839),
    "spearman": (0.6078, 0.9351),
    "efficiency": (0.3512, 0.7685),
    "monotonic": (0.5870, 0.7059),
    "temporal_neighbor": (0.4737, 0.8000),
    "adjacent_cosine": (0.0339, 0.3376),
    "displacement": (0.2632, 1.1355),
}
SPREAD = (25.0, 75.0)  # percentiles over takes

Medians = Mapping[str, Interval | None]  # by diagnostic; None where no take has a value


@dataclass(frozen=True)
class Walk:
    """One take's segments in a representation: vectors [S, D], relative times [S], first tokens."""

    vectors: np.ndarray
    times: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class Profile:
    """Progress over relative time: the mean over takes and their quartiles, per bin."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    takes: int  # those with an axis


Walks = Mapping[str, Walk]  # by take id


def read_walks(stream: Path, takes: Sequence[str]) -> dict[str, Walk]:
    """Return the annotated segments of the given takes, in the stream's representation."""
    reader, found = StreamReader(stream), {}
    for take_id in takes:
        take = reader.read(take_id)
        starts = runs(take.segment)[0]
        found[take_id] = Walk(
            segment_vectors(take.features, take.segment),
            segment_times(take.times, take.segment),
            starts[take.segment[starts] >= 0],
        )
    return found


def trajectory_medians(
    variants: Sequence[Walks], groups: Mapping[str, str], config: ReportConfig
) -> dict[str, Interval | None]:
    """Return medians over takes with 95 % intervals; a take's value is the mean over variants."""
    rows = [
        {take: asdict(trajectory(walk.vectors)) for take, walk in walks.items()}
        for walks in variants
    ]
    values = {
        name: {take: float(np.mean([row[take][name] for row in rows])) for take in rows[0]}
        for name in PAPER
    }
    return {
        name: median_interval(by_take, groups, config.bootstrap, config.seed)
        for name, by_take in values.items()
    }


def progress_profile(walks: Walks, bins: int) -> Profile | None:
    """Return mean and quartiles over takes of progress p in bins of relative time, if any.

    Segments of one take in one bin are averaged first, so that every take counts once. Where too
    few segments leave a bin empty in all takes, bins are halved until none is.
    """
    found = [(walk.times, progress(walk.vectors)) for walk in walks.values()]
    moving = [(times, p) for times, p in found if p is not None]
    if not moving:
        return None
    while True:
        table = np.array([binned_progress(times, p, bins) for times, p in moving])
        if bins == 1 or not np.isnan(table).all(0).any():
            break
        bins //= 2
    low, high = np.nanpercentile(table, SPREAD, axis=0)
    return Profile(np.nanmean(table, 0).tolist(), low.tolist(), high.tolist(), len(moving))
