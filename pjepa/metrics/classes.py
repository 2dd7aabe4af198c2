"""Scores that weigh classes, not frames: mean class accuracy, mean IoU, macro F1.

As in the authors' release, background is left out of the mean;
macro F1 is what surgical-phase papers report. All come from one confusion matrix, which can be
summed over takes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ClassScores:
    """Percent; each a plain mean over classes."""

    mean_accuracy: float
    mean_iou: float
    macro_f1: float


def confusion(truth: ArrayLike, prediction: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Return counts `[truth, prediction]`; unknown truths are dropped.

    A prediction outside the classes counts in an extra last column: it is wrong for every class.
    """
    y, p = np.asarray(truth, np.int64), np.asarray(prediction, np.int64)
    y, p = y[y >= 0], p[y >= 0]
    p = np.where((p < 0) | (p >= classes), classes, p)
    counts = np.bincount(y * (classes + 1) + p, minlength=classes * (classes + 1))
    return counts.reshape(classes, classes + 1)


def class_scores(counts: NDArray[np.int64], background: int | None = None) -> ClassScores:
    """Return the means over classes: accuracy where a truth exists, the others where either does.

    With no class to average over, every score is 100 (there was nothing to miss).
    """
    kept = np.arange(len(counts)) != (-1 if background is None else background)
    hits = np.diag(counts)[kept].astype(np.float64)
    true, predicted = counts.sum(1)[kept], counts[:, :-1].sum(0)[kept]
    return ClassScores(
        float(mean_percent(hits, true)),
        float(mean_percent(hits, true + predicted - hits)),
        float(mean_percent(2 * hits, true + predicted)),
    )


def mean_percent(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of part / whole in percent over the last axis, where `whole` is not 0."""
    present = whole > 0
    ratio = np.where(present, part / np.where(present, whole, 1), 0.0)
    count = present.sum(-1)
    return np.where(count > 0, 100.0 * ratio.sum(-1) / np.maximum(count, 1), 100.0)
