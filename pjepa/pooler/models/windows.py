"""Which steps of a take are pooled together: non-overlapping windows that cover each step once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import Span, runs


def pooled_spans(
    ids: NDArray[np.int64], window: int, rng: np.random.Generator | None = None
) -> list[Span]:
    """Return windows of at most `window` steps inside runs of equal ids [steps], in order.

    With `rng` the first window of a run too long for one is cut short at random.
    """
    found = []
    starts, lengths = runs(ids)
    for first, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
        begin = first
        if rng is not None and stop - first > window:
            begin = first - int(rng.integers(window))
        found += [
            (max(start, first), min(start + window, stop)) for start in range(begin, stop, window)
        ]
    return found
