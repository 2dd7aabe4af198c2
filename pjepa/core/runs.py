"""Runs of equal ids, shared by segments, windows and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Span = tuple[int, int]  # the first token or step, and the one past the last
JUMP = 1.5  # token steps between two tokens from which time has jumped


def runs(ids: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start index and length of every maximal run of equal ids, in order."""
    if len(ids) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return starts, np.diff(np.append(starts, len(ids)))


def whole_runs(ids: np.ndarray, start: int, end: int, limit: int) -> Iterator[Span]:
    """Yield spans of about `limit` items from start to end that cut no run of the sorted ids.

    A run that is longer is a span of its own. The last span may be half as long again, so that no
    small rest is left.
    """
    while start < end:
        stop = end
        if end - start > 1.5 * limit:
            stop = int(np.searchsorted(ids, ids[start + limit], "left"))
            if stop <= start:
                stop = int(np.searchsorted(ids, ids[start], "right"))
        yield start, stop
        start = stop


@dataclass(frozen=True)
class Spans:
    """Maximal runs: label, tokens first..end, seconds begin..until."""

    labels: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    begin_s: NDArray[np.float64]
    until_s: NDArray[np.float64]


def label_spans(labels: NDArray[np.int64], times: NDArray[np.float64], step_s: float) -> Spans:
    """Return the spans of labels [T] at times [T]; a token lasts to the next, or `step_s`."""
    jumped = np.diff(times, prepend=times[:1]) > JUMP * step_s
    piece = np.cumsum(jumped)
    _, name = np.unique(labels, return_inverse=True)
    first, lengths = runs(piece * (len(labels) + 1) + name)  # one id per piece and label
    end = first + lengths
    following = np.append(times, np.inf)[end]  # the token after the run
    meets = following - times[end - 1] <= JUMP * step_s
    until = np.where(meets, following, times[end - 1] + step_s)
    return Spans(labels[first], first, end, times[first], until)


# Segment coordinates of tokens: c(i) along the take, r(i) inside the segment (Sec. 3.2).


def token_offsets(segment: np.ndarray) -> np.ndarray:
    """Return r(i): the token's index inside its run of equal segment."""
    starts, lengths = runs(segment)
    return (np.arange(len(segment)) - np.repeat(starts, lengths)).astype(np.int32)


def attention_segments(segment: np.ndarray) -> np.ndarray:
    """Return 0, 1, 2, ... along the take; gaps (-1) become segments of their own."""
    _, lengths = runs(segment)
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int64)


def segment_means(features: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Return the mean of every run of equal segment [S, D], in double precision."""
    starts, lengths = runs(segment)
    sums: np.ndarray = np.add.reduceat(features.astype(np.float64), starts, axis=0)
    return sums / lengths[:, None]


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most so many items in order, evenly spaced, including the last."""
    count = min(most, len(items))
    places = np.ceil(np.arange(1, count + 1) * (len(items) / max(count, 1))).astype(int) - 1
    return [items[place] for place in places.tolist()]
