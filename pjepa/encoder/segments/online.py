"""Where segments end, as tokens arrive: the online half of `rule`.

| kind        | a segment ends                                                     |
|-------------|--------------------------------------------------------------------|
| `annotated` | when the caller says so                                            |
| `fixed`     | every `block` tokens                                               |
| `found`     | where `SegmentFinder` says so                                      |
"""

from __future__ import annotations

import numpy as np
import torch

from pjepa.encoder.segments.found import SegmentFinder
from pjepa.encoder.segments.rule import SegmentRule
from pjepa.nn.state import State, numbers
from pjepa.ui.errors import InputError


class OnlineSegments:
    """Coordinates c(i), r(i) and i of tokens as they arrive."""

    def __init__(self, rule: SegmentRule) -> None:
        if rule.kind == "ruptures":
            raise InputError(
                "segments of kind ruptures are cut with the whole take in view, so they cannot be "
                "streamed; use found or fixed segments"
            )
        if rule.kind == "found" and rule.found is None:
            raise InputError("found segments need a threshold; fit one on training tokens first")
        self.rule = rule
        self.finder = SegmentFinder(rule.found) if rule.kind == "found" and rule.found else None
        self.segment = self.offset = self.index = 0  # of the next token

    def push(self, tokens: np.ndarray, ends: bool) -> np.ndarray:
        """Return coordinates [n, 3] (segment, offset, index) of tokens [n, D], in order.

        `ends`: the segment ends with the last of them, whatever the rule says.
        """
        closed = self._closed(tokens)
        if ends and len(closed) and not closed[-1]:
            closed[-1] = True
            self._restart()
        place = np.arange(len(closed))
        opened = np.concatenate([[False], closed[:-1]])  # a segment begins with this token
        start = np.maximum.accumulate(np.where(opened, place, -self.offset))
        found = np.stack(
            [self.segment + np.cumsum(closed) - closed, place - start, self.index + place], axis=1
        )
        if len(closed):
            self.segment += int(closed.sum())
            self.offset = 0 if closed[-1] else int(found[-1, 1]) + 1
            self.index += len(closed)
        return found

    def end(self) -> bool:
        """End the segment after the last token; False if that was its end already."""
        if not self.offset:
            return False
        self.segment, self.offset = self.segment + 1, 0
        self._restart()
        return True

    def forget(self) -> None:
        """Start a new recording: forget how tokens changed before it."""
        if self.rule.found is not None and self.finder is not None:
            self.finder = SegmentFinder(self.rule.found)

    def _closed(self, tokens: np.ndarray) -> np.ndarray:
        """Return whether a segment ends with each token, by the rule alone (bool [n])."""
        if self.finder is not None:
            return np.fromiter(map(self.finder.push, tokens), bool, len(tokens))
        if self.rule.kind == "fixed":  # counted from where the present segment began
            return (self.offset + np.arange(1, len(tokens) + 1)) % self.rule.block == 0
        return np.zeros(len(tokens), bool)

    def _restart(self) -> None:
        if self.finder is not None:
            self.finder.length = 0

    def state(self) -> State:
        """Return counters, and what the finder remembers."""
        found = {"place": numbers(self.segment, self.offset, self.index)}
        if self.finder is not None:
            change = self.finder.change
            found["finder"] = numbers(self.finder.length, change.total, change.count)
            width = len(change.std)
            found["recent"] = torch.from_numpy(np.array(change.tokens).reshape(-1, width))
        return found

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        self.segment, self.offset, self.index = (int(x) for x in state["place"].tolist())
        if self.finder is not None:
            length, total, count = state["finder"].tolist()
            self.finder.length, change = int(length), self.finder.change
            change.total, change.count = total, int(count)
            change.tokens.extend(state["recent"].numpy())
