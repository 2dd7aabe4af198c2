"""The token grid of a take: which frames a token covers, and which tokens are encoded together.

Token k stands at time k / tokens_fps and covers the `tubelet` frames from there to token k + 1.
Windows partition the tokens, so every token gets exactly one feature.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pjepa.runs import runs

TIME_TOLERANCE = 1e-6  # seconds; also the slack of the token count

WindowScope = Literal["segment", "take"]


@dataclass(frozen=True)
class Window:
    """Tokens start .. stop - 1, encoded in one forward pass."""

    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start


def token_count(duration_s: float, tokens_fps: float) -> int:
    """Number of tokens of a take: ceil(duration * rate), at least 1."""
    return max(1, math.ceil(duration_s * tokens_fps - TIME_TOLERANCE))


def token_times(count: int, tokens_fps: float) -> NDArray[np.float64]:
    """Time of every token in seconds from the first displayed frame, [count]."""
    return np.arange(count, dtype=np.float64) / tokens_fps


def frame_times(window: Window, tokens_fps: float, tubelet: int) -> NDArray[np.float64]:
    """Times of the frames a window covers, `tubelet` per token, [tubelet * tokens]."""
    tokens = np.arange(window.start, window.stop, dtype=np.float64)
    shift = np.arange(tubelet, dtype=np.float64) / (tubelet * tokens_fps)
    return (tokens[:, None] / tokens_fps + shift).reshape(-1)


def padded_frame_times(
    window: Window, tokens_fps: float, steps: int, tubelet: int
) -> NDArray[np.float64]:
    """`frame_times`, the last one repeated up to `steps` tokens, [tubelet * steps]."""
    times = frame_times(window, tokens_fps, tubelet)
    return np.pad(times, (0, tubelet * steps - len(times)), mode="edge")


def frame_indices(
    times_s: NDArray[np.float64], presentation_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The last frame displayed at each time; times beyond the end give the last frame."""
    index = np.searchsorted(presentation_s, times_s + TIME_TOLERANCE, side="right") - 1
    return np.clip(index, 0, len(presentation_s) - 1).astype(np.int64)


def token_segments(
    times_s: NDArray[np.float64], boundaries: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Row of `boundaries` [S, 2] each token lies in (start <= time < end), -1 outside all.

    Where segments overlap, the last in order of (start, end) holds the token.
    """
    segments = np.full(len(times_s), -1, dtype=np.int64)
    for row in np.lexsort((boundaries[:, 1], boundaries[:, 0])):
        start, end = np.searchsorted(times_s, boundaries[row], side="left")
        segments[start:end] = row
    return segments


def windows(
    count: int,
    tokens_fps: float,
    steps: int,
    scope: WindowScope,
    boundaries: NDArray[np.float64] | None = None,
) -> list[Window]:
    """Non-overlapping windows of at most `steps` tokens that cover every token once.

    `segment`: no window crosses an annotated boundary, and tokens in no segment form runs of
    their own; `take`: the take is one run.
    """
    labels = np.zeros(count, dtype=np.int64)
    if scope == "segment" and boundaries is not None and len(boundaries):
        labels = token_segments(token_times(count, tokens_fps), boundaries)
    starts, lengths = runs(labels)
    return [
        Window(start, min(start + steps, stop))
        for first, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        for start in range(first, stop, steps)
    ]
