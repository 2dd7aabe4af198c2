"""Clip classification: one prediction per segment, from the mean of its tokens' probabilities.

Top-1 accuracy over clips is what EgoExo4D's fine-grained action benchmark reports.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pjepa.metrics.runs import label_runs


@dataclass(frozen=True)
class ClipCounts:
    """Segments classified, and how many of them correctly."""

    clips: float
    correct: float


def clip_counts(
    labels: NDArray[np.int64],
    probability: NDArray[np.float32],
    segments: NDArray[np.int64],
    background: int | None = None,
) -> ClipCounts:
    """Return how many clips of one take are right: labels [T], probability [T, C], segments [T].

    A clip is a run of one segment with one label; unknown and background clips do not count.
    """
    if not len(labels):
        return ClipCounts(0.0, 0.0)
    both = segments.astype(np.int64) * (int(labels.max()) + 2) + labels + 1  # one id per pair
    runs = label_runs(both)
    truth = labels[runs.starts]
    sums = np.add.reduceat(probability.astype(np.float64), runs.starts, axis=0)  # [clips, C]
    counted = (truth >= 0) & (truth != (-1 if background is None else background))
    right = sums.argmax(1) == truth
    return ClipCounts(float(counted.sum()), float((counted & right).sum()))
