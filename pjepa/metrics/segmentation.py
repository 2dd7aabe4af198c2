"""Frame accuracy, Edit and F1@k of labelled sequences, in four conventions with shared code.

`take_statistics` matches segments once and returns counts; `scores` turns weighted sums of those
counts into percent. So a mean over takes, a subset and a bootstrap are all one matrix product.
Where the official code raises or divides zero by zero, two empty sequences score 100 and one empty
sequence scores 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pjepa.core.runs import runs
from pjepa.ui.console import InputError

# Runs of equal labels, and comparisons of two sequences of runs.

LabelArray = NDArray[np.int64]
UNKNOWN = -1
THRESHOLDS = {"f1_10": 0.10, "f1_25": 0.25, "f1_50": 0.50}


@dataclass(frozen=True)
class LabelRuns:
    """Maximal runs of equal label, half open, and the run every frame belongs to."""

    labels: LabelArray
    starts: LabelArray
    ends: LabelArray
    of_frame: LabelArray


def label_runs(labels: LabelArray) -> LabelRuns:
    """Return the runs of `labels` in temporal order; unknown runs are included."""
    starts, lengths = runs(labels)
    of_frame = np.repeat(np.arange(len(starts)), lengths)
    return LabelRuns(labels[starts], starts, starts + lengths, of_frame)


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the Levenshtein distance, a whole column of the table per big-integer operation.

    Bit-parallel (Myers 1999, Hyyrö 2003): bit i of `up`/`down` says that the table grows/falls
    by one between rows i and i + 1 of the current column.
    """
    if not first or not second:
        return len(first) + len(second)
    rows: dict[int, int] = {}
    for index, label in enumerate(first):
        rows[label] = rows.get(label, 0) | (1 << index)
    full, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    up, down, distance = full, 0, len(first)
    for label in second:
        equal = rows.get(label, 0)
        vertical = equal | down
        horizontal = (((equal & up) + up) ^ up) | equal
        grows = down | (full & ~(horizontal | up))
        falls = up & horizontal
        distance += bool(grows & last) - bool(falls & last)
        grows = (grows << 1) | 1
        up = full & ((falls << 1) | ~(vertical | grows))
        down = full & grows & vertical
    return distance


def edit_score(truth: Sequence[int], prediction: Sequence[int]) -> float:
    """Return (1 - distance / longer length) in percent; two empty sequences score 100."""
    longest = max(len(truth), len(prediction))
    return 100.0 * (1 - edit_distance(truth, prediction) / longest) if longest else 100.0


def counted(labels: LabelArray, background: int | None) -> NDArray[np.bool_]:
    """Return which labels are known and not background."""
    return (labels >= 0) & (labels != (UNKNOWN if background is None else background))


def best_overlaps(
    truth: LabelRuns, prediction: LabelRuns, background: int | None
) -> tuple[LabelArray, LabelArray, NDArray[np.float64]]:
    """Return predicted runs, the truth each overlaps best (the first on ties), and their IoU.

    Two segments that do not overlap have IoU <= 0 and never reach a threshold, so only the
    P + G - 1 overlaps are examined: the places where either sequence starts a run.
    """
    starts = np.union1d(truth.starts, prediction.starts)
    own, other = prediction.of_frame[starts], truth.of_frame[starts]
    label = prediction.labels[own]
    same = (label == truth.labels[other]) & counted(label, background)
    own, other = own[same], other[same]
    if not len(own):
        return own, other, np.zeros(0)
    begin = np.stack([prediction.starts[own], truth.starts[other]])
    end = np.stack([prediction.ends[own], truth.ends[other]])
    overlap = (end.min(0) - begin.max(0)) / (end.max(0) - begin.min(0))
    order = np.lexsort((np.arange(len(own)), -overlap, own))
    best = order[np.append(True, own[order][1:] != own[order][:-1])]
    return own[best], other[best], overlap[best]


def majority_vote(prediction: ArrayLike, segments: ArrayLike) -> LabelArray:
    """Return `prediction` with each segment's most frequent label on all its frames.

    `segments [T]` holds an id per frame; negative ids keep their own prediction. On ties the
    smallest label wins.
    """
    pred, ids = np.asarray(prediction, np.int64), np.asarray(segments, np.int64)
    inside = ids >= 0
    voted = pred.copy()
    if inside.any():
        labels, label_index = np.unique(pred[inside], return_inverse=True)
        names, segment_index = np.unique(ids[inside], return_inverse=True)
        votes = np.zeros((len(names), len(labels)), np.int64)
        np.add.at(votes, (segment_index, label_index), 1)
        voted[inside] = labels[votes.argmax(1)][segment_index]
    return voted


# Counts of one take that determine every score and can be summed over takes.

Values = NDArray[np.float64]
ClassRow = tuple[int, float, float, float]  # class, frames right, frames true, frames predicted


@dataclass(frozen=True)
class Convention:
    """A rule for combining takes into one score."""

    pooled: bool = True
    deletes_ignored: bool = False
    skips_empty_edit: bool = False
    epsilon: float = 0.0


CONVENTIONS: Mapping[str, Convention] = {  # two are equal
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the statistics that `asdict` wrote."""
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
    """Return the statistics of one take; `background` is ignored in segments and `action_*`.

    A predicted segment takes its best truth or none, and only the first predicted segment that
    reaches a truth hits it: the hits of F1@k are the distinct truths reached.
    """
    rules = convention_named(convention)
    y, p = np.asarray(truth, np.int64), np.asarray(prediction, np.int64)
    if y.ndim != 1 or y.shape != p.shape:
        raise InputError(f"truth {y.shape} and prediction {p.shape} must have equal lengths [T]")
    p = np.where(y < 0, UNKNOWN, p)
    action = counted(y, background)
    segments = label_runs(y)
    right = y == p
    voted = y == majority_vote(p, np.where(y < 0, UNKNOWN, segments.of_frame))
    known = y >= 0
    rows = class_rows(y, p, background)
    if rules.deletes_ignored:
        y, p = y[action], p[action]
        segments = label_runs(y)
    predicted = label_runs(p)
    true_names, predicted_names = (
        runs.labels[counted(runs.labels, background)].tolist() for runs in (segments, predicted)
    )
    empty = not true_names and not predicted_names
    skipped = empty and rules.skips_empty_edit
    _, other, overlap = best_overlaps(segments, predicted, background)
    hits = [float(len(np.unique(other[overlap >= k]))) for k in THRESHOLDS.values()]
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
    truth: LabelArray, prediction: LabelArray, background: int | None
) -> tuple[ClassRow, ...]:
    """Return the frames right, true and predicted of every class, over the known frames."""
    y, p = truth[truth >= 0], prediction[truth >= 0]
    size = 1 + max(y.max(initial=0), p.max(initial=0))
    parts = (y[y == p], y, p)
    table = np.stack([np.bincount(part[part >= 0], minlength=size) for part in parts], axis=1)
    present = set(np.flatnonzero(table.any(1)).tolist()) - {background}
    return tuple((label, *table[label].astype(np.float64).tolist()) for label in sorted(present))


def convention_named(name: str) -> Convention:
    """Return the convention; raise if it is unknown, naming those that exist."""
    if name not in CONVENTIONS:
        raise InputError(f"unknown metric convention {name!r}: use one of {sorted(CONVENTIONS)}")
    return CONVENTIONS[name]


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
    rows = [[getattr(take, name) for name in COLUMNS] for take in takes]
    table = np.array(rows, np.float64).reshape(-1, len(COLUMNS))
    classes = class_table(takes)  # [takes, 3, C]
    weight = np.ones(len(takes)) if weights is None else weights
    if rules.pooled:
        values = _ratios(weight @ table, np.tensordot(weight, classes, 1), rules.epsilon)
    else:
        total = weight.sum(-1)
        values = {
            name: np.where(total > 0, weight @ value / np.maximum(total, 1e-300), 100.0)
            for name, value in _ratios(table, classes, rules.epsilon).items()
        }
    if not table[:, COLUMNS["clips"]].any():
        del values[CLIP_METRIC]
    return values


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
    column = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(takes), 3, len(labels)))
    for index, take in enumerate(takes):
        for label, *counts in take.classes:
            table[index, :, column[label]] = counts
    return table


def _ratios(sums: Values, classes: Values, epsilon: float) -> dict[str, Values]:
    """Return the metrics of counts `sums [..., columns]` and `classes [..., 3, C]` in percent."""
    column = {name: sums[..., index] for name, index in COLUMNS.items()}
    predicted, true = column["predicted_segments"], column["truth_segments"]
    empty = 100.0 * (predicted == 0)

    def percent(part: str, whole: str, otherwise: Values | float) -> Values:
        value = 100.0 * column[part] / np.where(column[whole] > 0, column[whole], 1.0)
        return np.where(column[whole] > 0, value, otherwise)

    ratios = {
        "acc": percent("action_correct", "action_frames", empty),
        "acc_bg": percent("correct", "frames", empty),
        "edit": percent("edit", "edit_takes", 1e4) / 100.0,
        "acc_vote": percent("action_voted_correct", "action_frames", empty),
        "macro_f1": _mean_percent(2 * classes[..., 0, :], classes[..., 1, :] + classes[..., 2, :]),
        CLIP_METRIC: percent("clips_correct", "clips", 100.0),
    }
    for name in THRESHOLDS:
        ratios[name] = _f1(column[name.replace("f1", "hits")], predicted, true, epsilon)
    return {name: ratios[name] for name in (*METRICS, CLIP_METRIC)}


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


# Clip classification: one prediction per segment, from the mean of its tokens' probabilities.


def clip_counts(
    labels: NDArray[np.int64],
    probability: NDArray[np.float32],
    segments: NDArray[np.int64],
    background: int | None = None,
) -> tuple[float, float]:
    """Return how many clips one take has and how many are right: labels [T], probability [T, C].

    A clip is a run of one segment of `segments` [T] with one label; unknown and background clips
    do not count.
    """
    if not len(labels):
        return 0.0, 0.0
    both = segments.astype(np.int64) * (int(labels.max()) + 2) + labels + 1  # one id per pair
    starts, _ = runs(both)
    truth = labels[starts]
    sums = np.add.reduceat(probability.astype(np.float64), starts, axis=0)  # [clips, C]
    clips = counted(truth, background)
    return float(clips.sum()), float((clips & (sums.argmax(1) == truth)).sum())
