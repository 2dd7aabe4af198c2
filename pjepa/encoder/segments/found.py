"""Segments without labels, online: c(i) for unannotated takes.

The detector compares the mean of the last `window` tokens with the mean of the `window` before, in
standardised channels, and ends a segment where this change is over `threshold` times its mean in
the take so far: calm and restless takes are cut alike. `benchmarks.boundaries` compares it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pjepa.ui.errors import InputError

FIT_TOKENS = 100_000  # of training takes that calibrate a threshold


@dataclass(frozen=True)
class FoundConfig:
    """Lengths in tokens of found segments: the mean one wanted, and the shortest and longest
    allowed; the shortest is half the mean by default.
    """

    tokens: int = 32
    max_tokens: int = 128
    min_tokens: int | None = None
    window: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.tokens <= self.max_tokens or self.window < 1:
            raise InputError(
                f"found segments of {self.shortest} to {self.max_tokens} tokens, {self.tokens} on "
                f"average, window {self.window}: expected 1 <= min <= mean <= max and window >= 1"
            )

    @property
    def shortest(self) -> int:
        """Return the fewest tokens a segment has, the take's last one excepted."""
        return max(1, self.tokens // 2) if self.min_tokens is None else self.min_tokens


@dataclass(frozen=True)
class FoundParameters:
    """What was measured on training takes; `threshold` is a penalty where `ruptures` is meant."""

    config: FoundConfig
    threshold: float
    std: np.ndarray  # [D] spread of every channel (its mean would cancel)


class RelativeChange:
    """How much the last tokens differ from those before, in units of the take's mean so far.

    The state is 2 x `window` tokens and two numbers.
    """

    def __init__(self, window: int, std: np.ndarray) -> None:
        self.window, self.std = window, np.asarray(std, np.float64)
        self.tokens: deque[np.ndarray] = deque(maxlen=2 * window)
        self.total, self.count = 0.0, 0

    def push(self, token: np.ndarray) -> float:
        """Return the change at this token [D], from it and earlier ones.

        0 while they are too few.
        """
        self.tokens.append(token / self.std)
        if len(self.tokens) < 2 * self.window:
            return 0.0
        # Token by token, not from running sums: a still picture changes by exactly 0.
        difference = self.tokens[self.window] - self.tokens[0]
        for place in range(1, self.window):
            difference += self.tokens[self.window + place] - self.tokens[place]
        change = float(np.square(difference).sum())
        self.total, self.count = self.total + change, self.count + 1
        return change * self.count / self.total if self.total else 0.0


def segment_ends(length: int, change: float, config: FoundConfig, threshold: float) -> bool:
    """Return whether a segment of `length` tokens so far ends with the token of this change."""
    return length >= config.max_tokens or (length >= config.shortest and change > threshold)


class SegmentFinder:
    """An online segmenter, whose decision at a token depends on that token and earlier ones only.

    A change is noticed some tokens late, so a segment may end with the first tokens of the next
    step; a closed segment is never reopened.
    """

    def __init__(self, found: FoundParameters) -> None:
        self.config, self.threshold = found.config, found.threshold
        self.change = RelativeChange(found.config.window, found.std)
        self.length = 0

    def push(self, token: np.ndarray) -> bool:
        """Return True if the segment ends with this token [D]."""
        self.length += 1
        ends = segment_ends(self.length, self.change.push(token), self.config, self.threshold)
        self.length = 0 if ends else self.length
        return ends


def found_segments(features: np.ndarray, found: FoundParameters) -> np.ndarray:
    """Return c(i) [T] of tokens [T, D], as `SegmentFinder` finds them one by one."""
    finder = SegmentFinder(found)
    ends = np.fromiter((finder.push(token) for token in features), np.int64, len(features))
    return np.cumsum(ends) - ends


def fit_threshold(takes: Sequence[np.ndarray], config: FoundConfig, std: np.ndarray) -> float:
    """Return the threshold at which segments of these takes average `config.tokens` tokens.

    No label is read. Of large sets, takes at even distances are measured.
    """
    changes = []
    for take in evenly_chosen(takes, FIT_TOKENS):
        seen = RelativeChange(config.window, std)
        changes.append([seen.push(token) for token in take])
    values = np.unique(np.concatenate(changes))  # thresholds in between give the same segments

    def fewer(place: int) -> int:
        return -sum(_segment_count(take, config, values[place]) for take in changes)

    places = range(len(values) - 1)  # over the highest value, only max_tokens ends a segment
    low = bisect_left(places, -sum(map(len, changes)) / config.tokens, key=fewer)
    high = bisect_left(places, fewer(low) + 1, key=fewer)
    return float((values[low] + values[high]) / 2)  # amid all that give as many segments


def evenly_chosen(takes: Sequence[np.ndarray], tokens: int) -> Sequence[np.ndarray]:
    """Return about `tokens` tokens of takes at even distances; all of them if there are fewer."""
    return takes[:: max(1, -(-sum(map(len, takes)) // tokens))]


def _segment_count(changes: Sequence[float], config: FoundConfig, threshold: float) -> int:
    count, length = 0, 0
    for change in changes:
        length += 1
        if segment_ends(length, change, config, threshold):
            count, length = count + 1, 0
    return count + (length > 0)
