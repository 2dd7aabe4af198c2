"""F1 by segment length: segmentation fails first on short steps.

A hit is that of F1@k. Recall is over the true segments of a bin, precision over the predicted
segments of the same bin by their own length, F1 their harmonic mean; so many short false segments
lower the score of the short bin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pjepa.metrics.segmentation import (
    LabelArray,
    LabelRuns,
    best_overlaps,
    counted,
    label_runs,
)

Seconds = NDArray[np.float64]


class SegmentHits(NamedTuple):
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
    prediction = np.where(truth < 0, -1, prediction)
    true, predicted = label_runs(truth), label_runs(prediction)
    own, other, overlap = best_overlaps(true, predicted, background)
    own, other = own[overlap >= threshold], other[overlap >= threshold]
    _, first = np.unique(other, return_index=True)  # the first predicted segment hits the truth
    return SegmentHits(
        *_lengths_and_hits(true, other, step_s, background),
        *_lengths_and_hits(predicted, own[first], step_s, background),
    )


def _lengths_and_hits(
    segments: LabelRuns, hit: LabelArray, step_s: float, background: int | None
) -> tuple[Seconds, NDArray[np.bool_]]:
    """Return how long the counted segments last, and which of them are among `hit`."""
    seconds = (segments.ends - segments.starts) * np.float64(step_s)
    is_hit = np.isin(np.arange(len(segments.labels)), hit)
    keep = counted(segments.labels, background)
    return seconds[keep], is_hit[keep]


def length_edges(true_s: Seconds, bins: int) -> Seconds:
    """Return the edges that put about equally many true segments in each bin; the last is inf."""
    if not len(true_s):
        return np.array([0.0, np.inf])
    inner = np.quantile(true_s, np.arange(1, bins) / bins, method="higher")
    return np.concatenate([[0.0], np.unique(inner[inner > true_s.min()]), [np.inf]])


def length_bins(takes: Iterable[SegmentHits], edges: Seconds) -> list[LengthBin]:
    """Return the scores of every bin [low, high), pooled over takes; 0 for empty bins."""
    columns = zip(*takes, strict=True)
    true_s, true_hit, predicted_s, predicted_hit = (np.concatenate(part) for part in columns)
    bins = []
    for low, high in pairwise(edges):
        true, predicted = ((s >= low) & (s < high) for s in (true_s, predicted_s))
        recall = 100.0 * true_hit[true].sum() / max(true.sum(), 1)
        precision = 100.0 * predicted_hit[predicted].sum() / max(predicted.sum(), 1)
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        counts = int(true.sum()), int(predicted.sum())
        bins.append(LengthBin(float(low), float(high), *counts, recall, precision, float(f1)))
    return bins
