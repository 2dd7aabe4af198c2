"""Frame accuracy, Edit and F1@k of labelled sequences, in four conventions with shared code.

`take_statistics` matches segments once and returns counts; `scores` turns weighted sums of those
counts into percent. So a mean over takes, a subset and a bootstrap are all one matrix product. The
conventions are listed in `pjepa.metrics.statistics`. Where the official code raises or divides zero
by zero, two empty sequences score 100 and one empty sequence scores 0.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pjepa.metrics.runs import THRESHOLDS
from pjepa.metrics.statistics import (
    COLUMNS,
    CONVENTIONS,
    UNKNOWN,
    TakeStatistics,
    Values,
    convention_named,
    take_statistics,
)

__all__ = [
    "CLIP_METRIC",
    "CONVENTIONS",
    "METRICS",
    "UNKNOWN",
    "TakeStatistics",
    "combined_score",
    "convention_named",
    "scores",
    "segmentation_scores",
    "take_statistics",
]

METRICS = ("acc", "acc_bg", "edit", *THRESHOLDS, "acc_vote", "macro_f1")
COMBINED = ("acc", "acc_bg", "edit", *THRESHOLDS)
CLIP_METRIC = "top1"  # only where whole segments were classified


def scores(
    takes: Sequence[TakeStatistics],
    convention: str = "release",
    weights: Values | None = None,
) -> dict[str, Values]:
    """Return every metric of `METRICS` in percent, one value per row of `weights [..., takes]`.

    Without weights each take counts once and the values are scalars (0-d). `top1` is added where
    a take has clips.
    """
    rules = convention_named(convention)
    table = np.array([take.row() for take in takes], np.float64).reshape(-1, len(COLUMNS))
    classes = class_table(takes)  # [takes, 3, C]
    weight = np.ones(len(takes)) if weights is None else weights
    if rules.pooled:
        found = _ratios(weight @ table, np.tensordot(weight, classes, 1), rules.epsilon)
    else:
        total = weight.sum(-1)
        found = {
            name: np.where(total > 0, weight @ value / np.maximum(total, 1e-300), 100.0)
            for name, value in _ratios(table, classes, rules.epsilon).items()
        }
    if not table[:, COLUMNS["clips"]].any():
        del found[CLIP_METRIC]
    return found


def segmentation_scores(
    truths: Sequence[ArrayLike],
    predictions: Sequence[ArrayLike],
    background: int | None = None,
    convention: str = "release",
) -> dict[str, float]:
    """Return every metric of `METRICS` in percent over the takes."""
    pairs = zip(truths, predictions, strict=True)
    takes = [take_statistics(y, p, background, convention) for y, p in pairs]
    return {name: float(value) for name, value in scores(takes, convention).items()}


def combined_score(metrics: Mapping[str, float]) -> float:
    """Return the mean of the six scores that the authors' release adds up to choose by."""
    return sum(metrics[name] for name in COMBINED) / len(COMBINED)


def class_table(takes: Sequence[TakeStatistics]) -> Values:
    """Return frames right, true and predicted by class `[takes, 3, C]`; C: classes that occur."""
    labels = sorted({row[0] for take in takes for row in take.classes})
    place = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(takes), 3, len(labels)))
    for index, take in enumerate(takes):
        for label, *counts in take.classes:
            table[index, :, place[label]] = counts
    return table


def _ratios(sums: Values, classes: Values, epsilon: float) -> dict[str, Values]:
    """Return the metrics of counts `sums [..., columns]` and `classes [..., 3, C]` in percent."""
    column = {name: sums[..., index] for name, index in COLUMNS.items()}
    predicted, true = column["predicted_segments"], column["truth_segments"]
    empty = 100.0 * (predicted == 0)
    full = np.full_like(empty, 100.0)

    def percent(part: str, whole: str, otherwise: Values) -> Values:
        value = 100.0 * column[part] / np.where(column[whole] > 0, column[whole], 1.0)
        return np.where(column[whole] > 0, value, otherwise)

    found = {
        "acc": percent("action_correct", "action_frames", empty),
        "acc_bg": percent("correct", "frames", empty),
        "edit": percent("edit", "edit_takes", 100.0 * full) / 100.0,
        "acc_vote": percent("action_voted_correct", "action_frames", empty),
        "macro_f1": _mean_percent(2 * classes[..., 0, :], classes[..., 1, :] + classes[..., 2, :]),
        CLIP_METRIC: percent("clips_correct", "clips", full),
    }
    for name in THRESHOLDS:
        found[name] = _f1(column[name.replace("f1", "hits")], predicted, true, epsilon)
    return {name: found[name] for name in (*METRICS, CLIP_METRIC)}


def _f1(hits: Values, predicted: Values, true: Values, epsilon: float) -> Values:
    """Return F1 in percent from TP and the two totals; nothing on both sides scores 100."""
    precision = hits / (np.where(predicted > 0, predicted, 1.0) + epsilon)
    recall = hits / (np.where(true > 0, true, 1.0) + epsilon)
    both = precision + recall
    value = 200.0 * precision * recall / (np.where(both > 0, both, 1.0) + epsilon)
    return np.where(predicted + true > 0, value, 100.0)


def _mean_percent(part: Values, whole: Values) -> Values:
    """Return the mean of part / whole in percent over the last axis, where `whole` is not 0."""
    present = whole > 0
    ratio = np.where(present, part / np.where(present, whole, 1), 0.0)
    count = present.sum(-1)
    return np.where(count > 0, 100.0 * ratio.sum(-1) / np.maximum(count, 1), 100.0)
