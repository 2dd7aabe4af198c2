"""From class probabilities to steps that people can use: no flicker of a quarter of a second.

    smooth     p'(t) = mean of p over a window centred on t
    min-step   argmax over labels l of sum_t log p'(t, l(t)), every run of l at least m tokens long

The second is exact, by dynamic programming over the time a run has lasted, not a repair of the
argmax: of all labellings without a short step it is the most likely one. Nothing reaches across a
cut, where the time stamps jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TINY = np.finfo(np.float32).tiny  # a probability that was rounded to 0


@dataclass(frozen=True)
class Cleaning:
    """Seconds; 0 leaves the most likely class of every token."""

    smooth_s: float = 0.0
    min_step_s: float = 0.0


AS_SCORED = Cleaning()  # the labels that the report's metrics are about


def cleaned_labels(
    scores: np.ndarray, step_s: float, cleaning: Cleaning, cuts: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return the label [T] of every token from its class probabilities [T, C]."""
    window = round(cleaning.smooth_s / step_s)
    least = int(np.ceil(cleaning.min_step_s / step_s - 1e-9))
    recordings = np.split(np.asarray(scores, np.float64), cuts)
    return np.concatenate(
        [lasting_labels(smoothed(recording, window), least) for recording in recordings]
    )


def smoothed(scores: np.ndarray, window: int) -> np.ndarray:
    """Return the centred moving average [T, C] over `window` tokens, fewer at both ends."""
    if window < 2:
        return scores
    total = np.concatenate([np.zeros((1, scores.shape[1])), scores.cumsum(axis=0)])
    place = np.arange(len(scores))
    first = np.maximum(place - (window - 1) // 2, 0)
    end = np.minimum(place + window // 2 + 1, len(scores))
    return np.asarray((total[end] - total[first]) / (end - first)[:, None])


def lasting_labels(scores: np.ndarray, least: int) -> NDArray[np.int64]:
    """Return the most likely labels [T] in which every run has at least `least` tokens."""
    if least < 2 or not len(scores):
        return scores.argmax(axis=1)
    gain = np.log(np.maximum(scores, TINY))  # [T, C]
    total = np.concatenate([np.zeros((1, gain.shape[1])), gain.cumsum(axis=0)])
    least = min(least, len(gain))
    best = np.full(
        total.shape, -np.inf
    )  # [t, c]: of the first t, the last run is c and long enough
    began = np.zeros(total.shape, bool)  # ... and it reached that length just here
    top = np.full(len(total), -np.inf)
    top[0] = 0.0
    for t in range(least, len(total)):
        go_on = best[t - 1] + gain[t - 1]
        begin = top[t - least] + total[t] - total[t - least]
        began[t] = begin > go_on
        best[t] = np.where(began[t], begin, go_on)
        top[t] = best[t].max()
    return _traced(best, began, least)


def _traced(best: np.ndarray, began: np.ndarray, least: int) -> NDArray[np.int64]:
    """Return the labels along the best path, from the last token back."""
    labels = np.empty(len(best) - 1, np.int64)
    t = len(labels)
    while t > 0:
        label = int(best[t].argmax())
        while not began[t, label]:
            labels[t - 1], t = label, t - 1
        labels[t - least : t], t = label, t - least
    return labels
