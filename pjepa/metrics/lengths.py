"""F1 by segment length: segmentation fails first on short steps.

A hit is that of F1@k. Recall is over the true segments of a bin,
precision over the predicted segments of the same bin by their own length, F1 their harmonic mean;
so many short false segments lower the score of the short bin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pjepa.metrics.segmentation import LabelArray, best_overlaps, label_runs

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class SegmentHits:
    """The segments of one take: how long each lasts and whether it was hit."""

    true_s: Seconds
    true_hit: NDArray[np.bool_]
    predicted_s: Seconds
    predicted_hit: NDArray[np.bool_]


@dataclass(frozen=True)
class LengthBin:
    """One bin of lengths, its counts and its scores in percent."""

    low_s: float
    high_s: float
    true: int
    predicted: int
    recall: float
    precision: float
    f1: float


def take_hits(
    truth: LabelArray,
    prediction: LabelArray,
    step_s: float,
    background: int | None,
    threshold: float,
) -> SegmentHits:
    """Return the true and predicted segments of a take, background and unknown left out."""
    ignored = set() if background is None else {background}
    prediction = np.where(truth < 0, -1, prediction)
    true, found = label_runs(truth), label_runs(prediction)
    own, other, overlap = best_overlaps(true, found, ignored)
    reached = overlap >= threshold
    own, other = own[reached], other[reached]
    _, first = np.unique(other, return_index=True)  # the first predicted segment hits the truth
    hit_true, hit_found = np.zeros(len(true.labels), bool), np.zeros(len(found.labels), bool)
    hit_true[other], hit_found[own[first]] = True, True
    counted = [(r.labels >= 0) & ~np.isin(r.labels, list(ignored)) for r in (true, found)]
    lasted: list[Seconds] = [(r.ends - r.starts) * np.float64(step_s) for r in (true, found)]
    return SegmentHits(
        lasted[0][counted[0]],
        hit_true[counted[0]],
        lasted[1][counted[1]],
        hit_found[counted[1]],
    )


def length_edges(true_s: Seconds, bins: int) -> Seconds:
    """Return the edges that put about equally many true segments in each bin; the last is inf."""
    if not len(true_s):
        return np.array([0.0, np.inf])
    inner = np.quantile(true_s, np.arange(1, bins) / bins, method="higher")
    return np.concatenate([[0.0], np.unique(inner[inner > true_s.min()]), [np.inf]])


def length_bins(takes: Iterable[SegmentHits], edges: Seconds) -> list[LengthBin]:
    """Return the scores of every bin [low, high), pooled over takes; 0 for empty bins."""
    rows = list(takes)
    true_s, predicted_s = (
        np.concatenate([getattr(row, name) for row in rows]) for name in ("true_s", "predicted_s")
    )
    true_hit, predicted_hit = (
        np.concatenate([getattr(row, name) for row in rows])
        for name in ("true_hit", "predicted_hit")
    )
    found = []
    for low, high in pairwise(edges):
        mine, theirs = ((s >= low) & (s < high) for s in (true_s, predicted_s))
        recall = 100.0 * true_hit[mine].sum() / max(mine.sum(), 1)
        precision = 100.0 * predicted_hit[theirs].sum() / max(theirs.sum(), 1)
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        counts = int(mine.sum()), int(theirs.sum())
        found.append(LengthBin(float(low), float(high), *counts, recall, precision, float(f1)))
    return found
