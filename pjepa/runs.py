"""Runs of equal ids: the one thing that segments, windows and labels have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def runs(ids: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start index and length of every maximal run of equal ids, in order."""
    if len(ids) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return starts, np.diff(np.append(starts, len(ids)))
