"""Diagnostics of a take's path through feature space (paper's supplement, Sec. A.3).

A take is its segments in temporal order, each one its pooled, L2-normalised feature: `z [T, D]`.
With u = z_T - z_1, a segment's progress is p_t = (z_t - z_1) . u / |u|^2, so p_1 = 0 and p_T = 1.

    straightness       |z_T - z_1| / sum |z_{t+1} - z_t|
    spearman           rank correlation of t and p_t
    efficiency         |p_T - p_1| / sum |p_{t+1} - p_t|
    monotonic          share of steps with p_{t+1} >= p_t
    temporal_neighbor  share of segments whose nearest segment is one of their temporal neighbours
    adjacent_cosine    mean of 1 - z_t . z_{t+1}
    displacement       |z_T - z_1|

The paper gives `efficiency` in words only: "how directly the projected trajectory moves from start
to end, penalizing backtracking along this axis". Net progress over its total variation matches
this: it is straightness on the axis, 1 if and only if the path never turns back, whatever its pace,
and a path that goes back by b in all scores 1 / (1 + 2 b). (Straightness also penalises detours at
right angles to the axis, and `monotonic` counts turns without their size.)

Undefined is NaN, which medians leave out: everything with fewer than two segments, straightness of
a path that never moves, and the progress measures where start and end coincide (no axis). Of
several equally near segments each is the nearest with equal chance, so a constant path scores as
chance would on `temporal_neighbor`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from pjepa.core.runs import runs, segment_means

Points = NDArray[np.float64]
STILL = 1e-9  # a length below this is none: features are stored with at most 24 bits
SLACK = 1e-9  # progress may fall, and distances differ, by rounding


@dataclass(frozen=True)
class Trajectory:
    """The seven diagnostics of one take, in the order of the paper's table."""

    straightness: float
    spearman: float
    efficiency: float
    monotonic: float
    temporal_neighbor: float
    adjacent_cosine: float
    displacement: float


@dataclass(frozen=True)
class Path2D:
    """One take's path on a t-SNE map (not in feature space), in the order of the paper's table."""

    straightness: float
    median_step: float
    step_90: float
    longest_step: float
    length: float
    displacement: float


def segment_vectors(features: NDArray[np.float32], segment: NDArray[np.int32]) -> Points:
    """Return the mean feature of every annotated segment, L2-normalised, in time order: [S, D].

    `segment [T]` is c(i); tokens outside any segment (-1) are left out. A zero mean stays zero.
    """
    starts, _ = runs(segment)
    annotated = segment[starts] >= 0
    if not annotated.any():
        return np.zeros((0, features.shape[1]))
    means = segment_means(features, segment)[annotated]
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    return means / np.where(norms > 0, norms, 1.0)


def segment_times(times: Points, segment: NDArray[np.int32]) -> Points:
    """Return the middle of every annotated segment as a share of the take's time: [S], 0 to 1.

    The first segment is at 0 and the last at 1, as p is.
    """
    starts, lengths = runs(segment)
    middle = (times[starts] + times[starts + lengths - 1])[segment[starts] >= 0] / 2
    if len(middle) < 2:
        return np.zeros(len(middle))
    return (middle - middle[0]) / (middle[-1] - middle[0])


def progress(z: Points) -> Points | None:
    """Return p [T], or None where start and end coincide or there are fewer than two segments."""
    if len(z) < 2:
        return None
    axis = z[-1] - z[0]
    if np.linalg.norm(axis) <= STILL:
        return None
    p: Points = (z - z[0]) @ axis / (axis @ axis)
    return p


def trajectory(z: Points) -> Trajectory:
    """Return the diagnostics of segment vectors z [T, D]."""
    if len(z) < 2:
        return Trajectory(*[np.nan] * 7)
    path = path_2d(z)
    p = progress(z)
    spearman = efficiency = monotonic = np.nan
    if p is not None:
        steps = np.diff(p)
        spearman = float(spearmanr(np.arange(len(p)), np.round(p, 9)).statistic)
        efficiency = float(abs(p[-1] - p[0]) / np.abs(steps).sum())
        monotonic = float((steps >= -SLACK).mean())
    return Trajectory(
        straightness=path.straightness,
        spearman=spearman,
        efficiency=efficiency,
        monotonic=monotonic,
        temporal_neighbor=temporal_neighbors(z),
        adjacent_cosine=float((1.0 - (z[:-1] * z[1:]).sum(1)).mean()),
        displacement=path.displacement,
    )


def path_2d(points: Points) -> Path2D:
    """Return the step and path lengths of points [T, D] in order; NaN with fewer than two."""
    if len(points) < 2:
        return Path2D(*[np.nan] * 6)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    length, moved = float(steps.sum()), float(np.linalg.norm(points[-1] - points[0]))
    return Path2D(
        straightness=moved / length if length > STILL else np.nan,
        median_step=float(np.median(steps)),
        step_90=float(np.percentile(steps, 90)),
        longest_step=float(steps.max()),
        length=length,
        displacement=moved,
    )


def temporal_neighbors(z: Points) -> float:
    """Return the share of segments whose nearest segment comes right before or after them."""
    squares = (z**2).sum(1)
    distance = squares[:, None] + squares[None] - 2 * z @ z.T  # [T, T]
    np.fill_diagonal(distance, np.inf)
    nearest = distance <= distance.min(1, keepdims=True) + SLACK
    index = np.arange(len(z))
    beside = np.abs(index[:, None] - index[None]) == 1
    return float(((nearest & beside).sum(1) / nearest.sum(1)).mean())


def binned_progress(times: Points, p: Points, bins: int) -> Points:
    """Return the mean of p in equal bins of relative time: [bins], NaN where no segment falls."""
    bin_of = np.minimum((times * bins).astype(int), bins - 1)
    counts = np.bincount(bin_of, minlength=bins)
    sums = np.bincount(bin_of, weights=p, minlength=bins)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
