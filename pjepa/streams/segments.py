"""Segment coordinates of tokens: c(i) along the take, r(i) inside the segment (Sec. 3.1)."""

from __future__ import annotations

import numpy as np

from pjepa.core.runs import runs


def token_offsets(segment: np.ndarray) -> np.ndarray:
    """Return r(i): the token's index inside its run of equal segment."""
    starts, lengths = runs(segment)
    return (np.arange(len(segment)) - np.repeat(starts, lengths)).astype(np.int32)


def attention_segments(segment: np.ndarray) -> np.ndarray:
    """Return 0, 1, 2, ... along the take; gaps (-1) become segments of their own."""
    _, lengths = runs(segment)
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int64)
