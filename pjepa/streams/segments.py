"""Segment coordinates of tokens: c(i), the segment, and r(i), the place inside it (Sec. 3.1)."""

from __future__ import annotations

import numpy as np


def token_segments(times: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    """c(i): the segment with start <= time < end, -1 outside every segment.

    Boundaries are sorted and disjoint, [S, 2] in seconds.
    """
    if len(boundaries) == 0:
        return np.full(len(times), -1, np.int32)
    index = np.searchsorted(boundaries[:, 0], times + 1e-9, side="right") - 1
    inside = (index >= 0) & (times + 1e-9 < boundaries[np.maximum(index, 0), 1])
    return np.where(inside, index, -1).astype(np.int32)


def runs(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start index and length of every maximal run of equal ids, in order."""
    if len(ids) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return starts, np.diff(np.append(starts, len(ids)))


def token_offsets(segment: np.ndarray) -> np.ndarray:
    """r(i): the token's index inside its run of equal segment."""
    starts, lengths = runs(segment)
    return (np.arange(len(segment)) - np.repeat(starts, lengths)).astype(np.int32)


def attention_segments(segment: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... along the take: gaps (-1) become segments of their own, so order is kept."""
    _, lengths = runs(segment)
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int64)
