"""Runs of equal labels, and comparisons of two sequences of runs.

Everything is exact and costs O(T + segments); Edit costs O(segments^2 / 64) through big integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pjepa.core.runs import runs

LabelArray = NDArray[np.int64]

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


def best_overlaps(
    truth: LabelRuns, prediction: LabelRuns, ignored: set[int]
) -> tuple[LabelArray, LabelArray, NDArray[np.float64]]:
    """Return predicted runs, the truth each overlaps best (the first on ties), and their IoU.

    Two segments that do not overlap have IoU <= 0 and never reach a threshold, so only the
    P + G - 1 overlaps are examined: the places where either sequence starts a run.
    """
    starts = np.union1d(truth.starts, prediction.starts)
    own, other = prediction.of_frame[starts], truth.of_frame[starts]
    label = prediction.labels[own]
    same = (label == truth.labels[other]) & (label >= 0) & ~np.isin(label, list(ignored))
    own, other = own[same], other[same]
    if not len(own):
        return own, other, np.zeros(0)
    begin = np.stack([prediction.starts[own], truth.starts[other]])
    end = np.stack([prediction.ends[own], truth.ends[other]])
    overlap = (end.min(0) - begin.max(0)) / (end.max(0) - begin.min(0))
    order = np.lexsort((np.arange(len(own)), -overlap, own))
    best = order[np.append(True, own[order][1:] != own[order][:-1])]
    return own[best], other[best], overlap[best]


def segment_hits(truth: LabelRuns, prediction: LabelRuns, ignored: set[int]) -> list[int]:
    """Return the true positives of F1@k for each threshold.

    A predicted segment takes its best truth or none, and only the first predicted segment that
    reaches a truth hits it: TP = number of distinct truths reached.
    """
    _, other, overlap = best_overlaps(truth, prediction, ignored)
    return [len(np.unique(other[overlap >= k])) for k in THRESHOLDS.values()]


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
