"""Runs of equal ids, shared by segments, windows and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]  # the first token or step, and the one past the last
JUMP = 1.5  # token steps between two tokens from which time has jumped


def runs(ids: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start index and length of every maximal run of equal ids, in order."""
    if len(ids) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return starts, np.diff(np.append(starts, len(ids)))


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
