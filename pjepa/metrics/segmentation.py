"""Frame accuracy, Edit and F1@k of one labelled sequence, in four conventions from one code.

`take_statistics` matches segments once and returns counts; `scores` turns weighted sums of those
counts into percent. So a mean over takes, a subset and a bootstrap are all one matrix product.
Definitions: facts/metrics.md, sections 1 and 2; `release`: facts/pjepa-release.md, section 5.

Conventions
    mstcn      accuracy and F1 pooled over takes, Edit a mean over takes
    ltcontext  frames whose truth is ignored are deleted first; every score a mean over takes
    fact       as mstcn, 1e-5 in every F1 denominator, takes without any segment skipped in Edit
    release    as mstcn, takes without any segment count 100 in Edit (our default)

Negative labels are unknown: those frames are dropped from accuracy, split the runs of both
sequences, and are never a segment. Where the official code raises or divides zero by zero, two
empty sequences score 100 and one empty sequence scores 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pjepa.errors import InputError
from pjepa.metrics.runs import (
    THRESHOLDS,
    Labels,
    Runs,
    edit_score,
    label_runs,
    majority_vote,
    segment_hits,
)

Values = NDArray[np.float64]

UNKNOWN = -1
METRICS = ("acc", "acc_bg", "edit", *THRESHOLDS, "acc_vote")


@dataclass(frozen=True)
class Convention:
    """How takes are put together (facts/metrics.md, section 2)."""

    pooled: bool = True
    deletes_ignored: bool = False
    skips_empty_edit: bool = False
    epsilon: float = 0.0


CONVENTIONS: Mapping[str, Convention] = {
    "mstcn": Convention(),
    "ltcontext": Convention(pooled=False, deletes_ignored=True),
    "fact": Convention(skips_empty_edit=True, epsilon=1e-5),
    "release": Convention(),
}


@dataclass(frozen=True)
class TakeStatistics:
    """All that the scores of one take need; the sum of two is the statistics of both.

    `frames` and `correct` cover every known frame, `action_*` those whose truth is not
    background, `voted_*` are correct after the majority vote inside true segments.
    """

    frames: float
    correct: float
    voted_correct: float
    action_frames: float
    action_correct: float
    action_voted_correct: float
    truth_segments: float
    predicted_segments: float
    hits_10: float
    hits_25: float
    hits_50: float
    edit: float
    edit_takes: float

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def true_false_missed(self, metric: str) -> tuple[float, float, float]:
        """Return TP, FP and FN of one of `f1_10`, `f1_25`, `f1_50`."""
        hits: float = getattr(self, metric.replace("f1", "hits"))
        return hits, self.predicted_segments - hits, self.truth_segments - hits

    def to_dict(self) -> dict[str, float]:
        """Return the fields by name, for JSON."""
        return asdict(self)


COLUMNS = {field.name: index for index, field in enumerate(fields(TakeStatistics))}


def take_statistics(
    truth: ArrayLike,
    prediction: ArrayLike,
    background: int | None = None,
    convention: str = "release",
) -> TakeStatistics:
    """Return the statistics of one take; `background` is ignored in segments and `action_*`."""
    rules = convention_named(convention)
    y, p = _checked(truth, prediction)
    p = np.where(y < 0, UNKNOWN, p)
    ignored = set() if background is None else {background}
    action = (y >= 0) & ~np.isin(y, list(ignored))
    runs = label_runs(y)
    right = y == p
    voted = y == majority_vote(p, np.where(y < 0, UNKNOWN, runs.of_frame))
    known = y >= 0
    if rules.deletes_ignored:
        y, p = y[action], p[action]
        runs = label_runs(y)
    predicted = label_runs(p)
    true_names, predicted_names = _segment_names(runs, ignored), _segment_names(predicted, ignored)
    empty = not true_names and not predicted_names
    skipped = empty and rules.skips_empty_edit
    hits = [float(hit) for hit in segment_hits(runs, predicted, ignored)]
    return TakeStatistics(
        frames=float(known.sum()),
        correct=float((known & right).sum()),
        voted_correct=float((known & voted).sum()),
        action_frames=float(action.sum()),
        action_correct=float((action & right).sum()),
        action_voted_correct=float((action & voted).sum()),
        truth_segments=float(len(true_names)),
        predicted_segments=float(len(predicted_names)),
        hits_10=hits[0],
        hits_25=hits[1],
        hits_50=hits[2],
        edit=0.0 if skipped else edit_score(true_names, predicted_names),
        edit_takes=0.0 if skipped else 1.0,
    )


def scores(
    takes: Sequence[TakeStatistics],
    convention: str = "release",
    weights: Values | None = None,
) -> dict[str, Values]:
    """Return every metric of `METRICS` in percent, one value per row of `weights [..., takes]`.

    Without weights each take counts once and the values are scalars (0-d).
    """
    rules = convention_named(convention)
    table = np.array([astuple(take) for take in takes], np.float64).reshape(-1, len(COLUMNS))
    weight = np.ones(len(takes)) if weights is None else weights
    if rules.pooled:
        return _ratios(weight @ table, rules.epsilon)
    total = weight.sum(-1)
    return {
        name: np.where(total > 0, weight @ value / np.maximum(total, 1e-300), 100.0)
        for name, value in _ratios(table, rules.epsilon).items()
    }


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


def convention_named(name: str) -> Convention:
    """Return the convention, or say which exist."""
    if name not in CONVENTIONS:
        raise InputError(f"unknown metric convention {name!r}: use one of {sorted(CONVENTIONS)}")
    return CONVENTIONS[name]


def _checked(truth: ArrayLike, prediction: ArrayLike) -> tuple[Labels, Labels]:
    y, p = np.asarray(truth, np.int64), np.asarray(prediction, np.int64)
    if y.ndim != 1 or y.shape != p.shape:
        raise InputError(f"truth {y.shape} and prediction {p.shape} must be two equal lengths [T]")
    return y, p


def _segment_names(runs: Runs, ignored: set[int]) -> list[int]:
    """Return the labels of the runs that are segments: known and not ignored."""
    return [label for label in runs.labels.tolist() if label >= 0 and label not in ignored]


def _ratios(sums: Values, epsilon: float) -> dict[str, Values]:
    """Return the metrics of statistics `sums [..., columns]` in percent."""
    column = {name: sums[..., index] for name, index in COLUMNS.items()}
    predicted, true = column["predicted_segments"], column["truth_segments"]
    empty = 100.0 * (predicted == 0)

    def percent(part: str, whole: str, otherwise: Values) -> Values:
        value = 100.0 * column[part] / np.where(column[whole] > 0, column[whole], 1.0)
        return np.where(column[whole] > 0, value, otherwise)

    found = {
        "acc": percent("action_correct", "action_frames", empty),
        "acc_bg": percent("correct", "frames", empty),
        "edit": percent("edit", "edit_takes", np.full_like(empty, 10000.0)) / 100.0,
        "acc_vote": percent("action_voted_correct", "action_frames", empty),
    }
    for name in THRESHOLDS:
        found[name] = _f1(column[name.replace("f1", "hits")], predicted, true, epsilon)
    return {name: found[name] for name in METRICS}


def _f1(hits: Values, predicted: Values, true: Values, epsilon: float) -> Values:
    """Return F1 in percent from TP and the two totals; nothing on both sides scores 100."""
    precision = hits / (np.where(predicted > 0, predicted, 1.0) + epsilon)
    recall = hits / (np.where(true > 0, true, 1.0) + epsilon)
    both = precision + recall
    value = 200.0 * precision * recall / (np.where(both > 0, both, 1.0) + epsilon)
    return np.where(predicted + true > 0, value, 100.0)
