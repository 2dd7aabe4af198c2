"""The token grid of a take: which frames a token covers, and which tokens are encoded together.

Token k is at time k / tokens_fps and covers the `tubelet` frames from there to token k + 1.
Windows partition the tokens, so every token gets exactly one feature:

| mode       | a window shows                         | kept of it              | looks ahead      |
|------------|----------------------------------------|-------------------------|------------------|
| `block`    | its own steps, the last frame repeated | all of its steps        | the whole window |
| `trailing` | the steps up to its last one, the      | the last `stride` steps | `stride` steps   |
|            | first frame repeated                   |                         |                  |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import runs
from pjepa.core.section import WindowMode, WindowScope

TIME_TOLERANCE = 1e-6  # seconds; also the slack of the token count


@dataclass(frozen=True)
class Window:
    """Tokens start .. stop - 1, encoded in one forward pass over the steps first .. stop - 1.

    Step `start` is at `place` of the encoder's input; padding fills the rest.
    """

    start: int
    stop: int
    first: int
    place: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Sampling:
    """How takes are cut: `steps` of `tubelet` frames in a window, `tokens_fps` steps a second."""

    tokens_fps: float
    tubelet: int
    steps: int
    scope: WindowScope = "segment"
    mode: WindowMode = "block"
    stride: int = 1

    @property
    def kept(self) -> int:
        """Return steps of a window that become features."""
        return self.steps if self.mode == "block" else self.stride

    @property
    def lookahead_s(self) -> float:
        """Return seconds after a token's own time beyond which no frame affects it.

        An image model (tubelet 1) shows each token its own frame alone.
        """
        if self.tubelet == 1:
            return 0.0
        return self.kept / self.tokens_fps

    def windows(
        self,
        count: int,
        boundaries: NDArray[np.float64] | None = None,
        jumps_s: Sequence[float] = (),
    ) -> list[Window]:
        """Return windows that cover each of `count` tokens once, in order.

        `segment`: none crosses an annotated boundary [S, 2], and tokens in no segment form runs of
        their own; `take`: the take is one run. None crosses a jump of the time stamps.
        """
        ids = window_ids(count, self.tokens_fps, self.scope, boundaries)
        starts, lengths = runs(cut_ids(ids, jumps_s, self.tokens_fps))
        return [
            self._window(begin, start, min(start + self.kept, end))
            for begin, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
            for start in range(begin, end, self.kept)
        ]

    def _window(self, begin: int, start: int, stop: int) -> Window:
        """Return the window of tokens start .. stop - 1 in the run that begins at `begin`."""
        if self.mode == "block":
            return Window(start, stop, start, 0)
        return Window(start, stop, max(begin, stop - self.steps), self.steps - (stop - start))

    def frame_times(self, window: Window) -> NDArray[np.float64]:
        """Return times of the frames shown to the encoder, [steps * tubelet]; padding repeats."""
        tokens = np.arange(window.first, window.stop, dtype=np.float64)
        shift = np.arange(self.tubelet, dtype=np.float64) / (self.tubelet * self.tokens_fps)
        times = (tokens[:, None] / self.tokens_fps + shift).reshape(-1)
        before = self.tubelet * (window.place - (window.start - window.first))
        after = self.tubelet * self.steps - len(times) - before
        return np.pad(times, (before, after), mode="edge")


def token_count(duration_s: float, tokens_fps: float) -> int:
    """Return the number of tokens of a take: ceil(duration * rate), at least 1."""
    return max(1, math.ceil(duration_s * tokens_fps - TIME_TOLERANCE))


def recordings(times_s: NDArray[np.float64], jumps_s: Sequence[float]) -> NDArray[np.int64]:
    """Return which recording of a take is on at each time, [T]; a jump begins the next one."""
    return np.searchsorted(np.array(jumps_s), times_s + TIME_TOLERANCE, side="right")


def cut_ids(
    ids: NDArray[np.int64], jumps_s: Sequence[float], tokens_fps: float
) -> NDArray[np.int64]:
    """Return ids [count] of tokens that also differ between the two sides of a jump."""
    if not len(jumps_s):
        return ids
    return recordings(token_times(len(ids), tokens_fps), jumps_s) * (ids.max() + 2) + ids


def cut_steps(jumps_s: Sequence[float], tokens_fps: float) -> list[int]:
    """Return the first token after each jump of the time stamps."""
    return sorted({math.ceil(time * tokens_fps - TIME_TOLERANCE) for time in jumps_s})


def token_times(count: int, tokens_fps: float) -> NDArray[np.float64]:
    """Return the time of every token in seconds from the first displayed frame, [count]."""
    return np.arange(count, dtype=np.float64) / tokens_fps


def frame_indices(
    times_s: NDArray[np.float64], presentation_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the last frame displayed at each time; times beyond the end give the last frame."""
    index = np.searchsorted(presentation_s, times_s + TIME_TOLERANCE, side="right") - 1
    return np.clip(index, 0, len(presentation_s) - 1).astype(np.int64)


def token_segments(
    times_s: NDArray[np.float64], boundaries: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the row of `boundaries` [S, 2] each token lies in (start <= time < end), or -1.

    Where segments overlap, the last in order of (start, end) holds the token.
    """
    segments = np.full(len(times_s), -1, dtype=np.int64)
    for row in np.lexsort((boundaries[:, 1], boundaries[:, 0])):
        start, end = np.searchsorted(times_s, boundaries[row], side="left")
        segments[start:end] = row
    return segments


def window_ids(
    count: int, tokens_fps: float, scope: WindowScope, boundaries: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Return the scope id of every step, [count]: windows stay inside equal ids.

    Scopes are the take's segments [S, 2] (seconds), or the whole take.
    """
    if scope == "segment" and boundaries is not None and len(boundaries):
        return token_segments(token_times(count, tokens_fps), boundaries)
    return np.zeros(count, dtype=np.int64)
