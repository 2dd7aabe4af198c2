"""Counts of one take that determine every score and can be summed over takes.

Conventions
    mstcn      accuracy and F1 pooled over takes, Edit a mean over takes
    ltcontext  frames whose truth is ignored are deleted first; every score a mean over takes
    fact       as mstcn, 1e-5 in every F1 denominator, takes without any segment skipped in Edit
    release    as mstcn, takes without any segment count 100 in Edit (our default)

Negative labels are unknown: those frames are dropped from accuracy, split the runs of both
sequences, and are never a segment.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pjepa.metrics.runs import (
    LabelArray,
    LabelRuns,
    edit_score,
    label_runs,
    majority_vote,
    segment_hits,
)
from pjepa.ui.errors import InputError

Values = NDArray[np.float64]
ClassRow = tuple[int, float, float, float]  # class, frames right, frames true, frames predicted

UNKNOWN = -1


@dataclass(frozen=True)
class Convention:
    """A rule for combining takes into one score."""

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
    """Counts that determine the scores of one take; they can be added over takes.

    `frames` and `correct` cover every known frame, `action_*` those whose truth is not
    background, `voted_*` are correct after the majority vote inside true segments, `clips_*` count
    whole segments. `classes` has a row for every class but background that is true or predicted.
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
    clips: float = 0.0
    clips_correct: float = 0.0
    classes: tuple[ClassRow, ...] = ()

    def __add__(self, other: Self) -> Self:
        sums = {name: getattr(self, name) + getattr(other, name) for name in COLUMNS}
        by_class: dict[int, list[float]] = {}
        for label, *counts in (*self.classes, *other.classes):
            before = by_class.get(label, [0.0, 0.0, 0.0])
            by_class[label] = [a + b for a, b in zip(before, counts, strict=True)]
        rows = tuple((label, *by_class[label]) for label in sorted(by_class))
        return type(self)(**sums, classes=rows)  # type: ignore[arg-type]

    def row(self) -> list[float]:
        """Return the plain counts, in the order of `COLUMNS`."""
        return [getattr(self, name) for name in COLUMNS]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_dict` wrote."""
        rows = tuple((int(label), *counts) for label, *counts in values["classes"])
        return cls(**{**values, "classes": rows})


COLUMNS = {
    field.name: index
    for index, field in enumerate(f for f in fields(TakeStatistics) if f.name != "classes")
}


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
    rows = class_rows(y, p, ignored)
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
        classes=rows,
    )


def class_rows(
    truth: LabelArray, prediction: LabelArray, ignored: set[int]
) -> tuple[ClassRow, ...]:
    """Return the frames right, true and predicted of every class, over the known frames."""
    known = truth >= 0
    right = _counts(truth[known & (truth == prediction)])
    true, predicted = _counts(truth[known]), _counts(prediction[known])
    labels = sorted(label for label in {*true, *predicted} - ignored if label >= 0)
    return tuple(
        (label, right.get(label, 0.0), true.get(label, 0.0), predicted.get(label, 0.0))
        for label in labels
    )


def _counts(labels: LabelArray) -> dict[int, float]:
    names, counts = np.unique(labels, return_counts=True)
    return dict(zip(names.tolist(), counts.astype(np.float64).tolist(), strict=True))


def convention_named(name: str) -> Convention:
    """Return the convention; raise if it is unknown, naming those that exist."""
    if name not in CONVENTIONS:
        raise InputError(f"unknown metric convention {name!r}: use one of {sorted(CONVENTIONS)}")
    return CONVENTIONS[name]


def _checked(truth: ArrayLike, prediction: ArrayLike) -> tuple[LabelArray, LabelArray]:
    y, p = np.asarray(truth, np.int64), np.asarray(prediction, np.int64)
    if y.ndim != 1 or y.shape != p.shape:
        raise InputError(f"truth {y.shape} and prediction {p.shape} must have equal lengths [T]")
    return y, p


def _segment_names(runs: LabelRuns, ignored: set[int]) -> list[int]:
    """Return the labels of the runs that are segments: known and not ignored."""
    return [label for label in runs.labels.tolist() if label >= 0 and label not in ignored]
