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
import torch

from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import SegmentKind
from pjepa.storage.saver import State, numbers
from pjepa.ui.console import InputError

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
    """What was measured on training takes."""

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


def fit_threshold(takes: Sequence[np.ndarray], config: FoundConfig, std: np.ndarray) -> float:
    """Return the threshold at which segments of these takes average `config.tokens` tokens.

    No label is read. Of large sets, takes at even distances are measured.
    """
    changes = []
    every = max(1, -(-sum(map(len, takes)) // FIT_TOKENS))
    for take in takes[::every]:
        seen = RelativeChange(config.window, std)
        changes.append([seen.push(token) for token in take])
    values = np.unique(np.concatenate(changes))  # thresholds in between give the same segments

    def fewer(place: int) -> int:
        return -sum(_segment_count(take, config, values[place]) for take in changes)

    places = range(len(values) - 1)  # over the highest value, only max_tokens ends a segment
    low = bisect_left(places, -sum(map(len, changes)) / config.tokens, key=fewer)
    high = bisect_left(places, fewer(low) + 1, key=fewer)
    return float((values[low] + values[high]) / 2)  # amid all that give as many segments


def _segment_count(changes: Sequence[float], config: FoundConfig, threshold: float) -> int:
    count, length = 0, 0
    for change in changes:
        length += 1
        if segment_ends(length, change, config, threshold):
            count, length = count + 1, 0
    return count + (length > 0)


# Which segments attention and positions use: one entry for training, export and `encode()`.


@dataclass(frozen=True)
class SegmentRule:
    """Where segments come from; `found` is what was measured for segments of that kind."""

    kind: SegmentKind = "annotated"
    block: int = 64
    found: FoundParameters | None = None

    def __post_init__(self) -> None:
        if self.kind == "found" and self.found is None:
            raise InputError("found segments need a threshold; fit one on training tokens first")


def take_segments(
    features: np.ndarray,
    annotated: np.ndarray | None,
    rule: SegmentRule,
    name: str = "the take",
    recording: np.ndarray | None = None,
) -> np.ndarray:
    """Return c(i) [T] of one take of tokens [T, D]; `annotated` [T] is the stream's `segment`.

    Only annotated segments reach from one `recording` [T] of the take into the next.
    """
    if rule.kind == "annotated":
        if annotated is None or not (annotated >= 0).any():
            raise InputError(
                f"{name}: no annotated segments, and in a single one every token would see the "
                "whole take; annotate it, or use pjepa.attention=block_causal pjepa.segments=fixed "
                "(or pjepa.segments=found)"
            )
        return attention_segments(annotated)
    starts = np.zeros(1, np.int64) if recording is None else runs(recording)[0]
    segments: list[np.ndarray] = []
    for recorded in np.split(features, starts[1:]):
        online = OnlineSegments(rule)
        online.segment = int(segments[-1][-1]) + 1 if segments else 0
        segments.append(online.push(recorded, ends=False)[:, 0])
    return np.concatenate(segments)


# Where segments end, as tokens arrive.


class OnlineSegments:
    """Coordinates c(i), r(i) and i of tokens as they arrive.

    Whether a found segment ends with a token depends on that token and earlier ones only. A change
    is noticed some tokens late, so a segment may end with the first tokens of the next step; a
    closed segment is never reopened.
    """

    def __init__(self, rule: SegmentRule) -> None:
        self.rule, self.found = rule, rule.found if rule.kind == "found" else None
        self.segment = self.offset = self.index = 0  # of the next token
        self.forget()

    def push(self, tokens: np.ndarray, ends: bool) -> np.ndarray:
        """Return coordinates [n, 3] (segment, offset, index) of tokens [n, D], in order.

        `ends`: the segment ends with the last of them, whatever the rule says.
        """
        places = np.empty((len(tokens), 3), np.int64)
        for number, token in enumerate(tokens):
            places[number] = self.segment, self.offset, self.index
            ended = self._ends_with(token)
            self.offset, self.index = self.offset + 1, self.index + 1
            if ended or (ends and number == len(tokens) - 1):
                self.end()
        return places

    def end(self) -> None:
        """End the segment after the last token, unless that was its end already."""
        if self.offset:
            self.segment, self.offset = self.segment + 1, 0

    def forget(self) -> None:
        """Start a new recording: forget how tokens changed before it."""
        found = self.found
        self.change = None if found is None else RelativeChange(found.config.window, found.std)

    def _ends_with(self, token: np.ndarray) -> bool:
        """Return whether the segment ends with the next token [D], by the rule alone."""
        found, length = self.found, self.offset + 1
        if found is not None and self.change is not None:
            return segment_ends(length, self.change.push(token), found.config, found.threshold)
        return self.rule.kind == "fixed" and length % self.rule.block == 0

    def state(self) -> State:
        """Return counters, and how tokens changed."""
        state = {"place": numbers(self.segment, self.offset, self.index)}
        if self.change is not None:
            state["finder"] = numbers(self.offset, self.change.total, self.change.count)
            width = len(self.change.std)
            state["recent"] = torch.from_numpy(np.array(self.change.tokens).reshape(-1, width))
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        self.segment, self.offset, self.index = (int(x) for x in state["place"].tolist())
        if self.change is not None:
            _, self.change.total, count = state["finder"].tolist()
            self.change.count = int(count)
            self.change.tokens.extend(state["recent"].numpy())
