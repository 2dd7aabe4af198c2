"""Tokens of a video as it arrives: windows of frames, backbone, pooler (paper Sec. 3.1).

Windows end with the newest frame and do not overlap, unless `stride` keeps only the last steps of
each. They never look ahead, so a token waits only for the end of its hop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pjepa.live.source import Hop, StepGrid
from pjepa.patches.backbone import Backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import encoded_batch
from pjepa.pooler.stored import Pooler


@dataclass(frozen=True)
class TimedTokens:
    """Tokens [n, D] in a row and their times [n]; `until_s`: the frames seen so far end there."""

    features: np.ndarray
    times_s: np.ndarray
    until_s: float


class TokenStream:
    """Hops of frames in, tokens out, `pooled` steps at a time."""

    def __init__(
        self, backbone: Backbone, pooler: Pooler, config: PatchesConfig, pooled: int, next_step: int
    ) -> None:
        self.backbone, self.pooler, self.config, self.pooled = backbone, pooler, config, pooled
        self.next_step = next_step  # steps before it are context only
        self.history: Tensor | None = None  # [3, T, crop, crop] frames before the current hop
        self.patches: list[np.ndarray] = []  # of steps that wait for their pooler window
        self.expected = -1  # the step that should come next
        self.spent = {"backbone": 0.0, "pooler": 0.0}  # seconds

    @property
    def grid(self) -> StepGrid:
        """Return the grid on which frames are expected."""
        trailing = self.config.window_mode == "trailing"
        hop = self.config.window_stride if trailing else self.config.steps
        return StepGrid(self.config.tokens_fps, self.config.tubelet, hop)

    @property
    def lookahead_s(self) -> float:
        """Return how long a token waits at most for frames after its own."""
        hop = self.grid.hop
        return max(hop, -(-self.pooled // hop) * hop) / self.config.tokens_fps

    def push(self, hop: Hop) -> list[TimedTokens]:
        """Return the tokens that are complete with this hop.

        Steps lost before it, or a jump of the time stamps, restart the window.
        """
        complete = []
        if hop.start != self.expected or hop.jump is not None:
            complete += self._pooled(self.expected, finish=True)
            self.history = None
        self.expected = hop.start + hop.steps
        started = time.perf_counter()
        patches = self._encoded(hop)
        self.spent["backbone"] += time.perf_counter() - started
        reported = max(0, min(hop.steps, self.next_step - hop.start))  # reported before a restart
        self.patches.extend(patches[reported:])
        return complete + self._pooled(self.expected, finish=False)

    def finish(self) -> list[TimedTokens]:
        """Return the tokens of the steps that still wait for a whole pooler window."""
        return self._pooled(self.expected, finish=True)

    def _encoded(self, hop: Hop) -> np.ndarray:
        """Return the patches [steps, cells, width] of a hop, seen in a window that ends with it."""
        size = self.config.frames_per_window
        frames = hop.video if self.history is None else torch.cat([self.history, hop.video], 1)
        frames, trailing = frames[:, -size:], self.config.window_mode == "trailing"
        missing = size - frames.shape[1]  # the first or, as in training, the last frame repeats
        before, after = (missing, 0) if trailing else (0, missing)
        first, last = frames[:, :1], frames[:, -1:]
        window = torch.cat(
            [first.expand(-1, before, -1, -1), frames, last.expand(-1, after, -1, -1)], 1
        )
        self.history = frames if trailing else None
        steps = encoded_batch(self.backbone, window[None], self.config).array()[0]
        return steps[-hop.steps :] if trailing else steps[: hop.steps]

    def _pooled(self, stop: int, finish: bool) -> list[TimedTokens]:
        """Return tokens of whole pooler windows; `stop` is the step after the last that waits."""
        started, complete = time.perf_counter(), []
        rate, per_step = self.config.tokens_fps, self.pooler.facts.per_step
        while len(self.patches) >= self.pooled or (finish and self.patches):
            first = stop - len(self.patches)
            window, self.patches = self.patches[: self.pooled], self.patches[self.pooled :]
            features = self.pooler.window_tokens(np.stack(window))
            times = (first * per_step + np.arange(len(features))) / (rate * per_step)
            complete.append(TimedTokens(features, times, stop / rate))
        self.spent["pooler"] += time.perf_counter() - started
        return complete
