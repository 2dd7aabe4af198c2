"""One time line where time stamps jump: a restarted encoder, recordings laid end to end."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAUSE_STEPS = 10  # usual distances between frames; a time-lapse film has long ones throughout


@dataclass(frozen=True)
class Jump:
    """Stamps jump by `by_s` seconds before the frame shown at `time_s`."""

    time_s: float
    by_s: float

    def __str__(self) -> str:
        return f"time stamps jump by {self.by_s:+.1f} s at {self.time_s:.1f} s"


def jump_limit(stamps: NDArray[np.int64], base: float, max_gap_s: float) -> int:
    """Return the longest distance of two stamps, in ticks of `base` seconds, that is a pause."""
    usual = float(np.median(np.abs(np.diff(stamps)))) if len(stamps) > 1 else 0.0
    return round(max(max_gap_s / base, PAUSE_STEPS * usual))


def stitched(
    stamps: NDArray[np.int64], limit: int, base: float
) -> tuple[NDArray[np.int64], tuple[Jump, ...]]:
    """Return stamps [N] without jumps, and where they were; a jump becomes a usual step.

    A jump goes back, or ahead by more than `limit` ticks.
    """
    steps = np.diff(stamps)
    places = np.flatnonzero((steps < 0) | (steps > limit))
    if not len(places):
        return stamps, ()
    plain = np.delete(steps, places)
    usual = max(1, round(float(np.median(plain)))) if len(plain) else 1
    by = steps[places] - usual
    steps = steps.copy()
    steps[places] = usual
    whole = stamps[0] + np.concatenate([[0], np.cumsum(steps)])
    times = (whole[places + 1] - whole[0]) * base
    return whole, tuple(Jump(float(t), float(b)) for t, b in zip(times, by * base, strict=True))


class Clock:
    """Seconds of frames as they come, from the first one displayed; `jump` is that of the last.

    The same rule as `stitched`, for a stream whose end nobody knows.
    """

    def __init__(self, base: float, nominal_fps: float, max_gap_s: float) -> None:
        self.base, self.nominal, self.max_gap_s = base, nominal_fps, max_gap_s
        self.jump: Jump | None = None
        self.last, self._count, self._moved = 0.0, 0, 0.0  # seconds moved so that parts fit
        self._stamp: int | None = None

    @property
    def usual_s(self) -> float:
        """Return the mean distance of two frames so far."""
        spent = self.last - self._moved
        return spent / (self._count - 1) if spent > 0 else 1 / self.nominal

    def time(self, stamp: int | None) -> float:
        """Return seconds of the frame with this stamp; without one, a step after the last."""
        step, self.jump = 0.0, None
        if self._count and (stamp is None or self._stamp is None):
            step = 1 / self.nominal
        elif stamp is not None and self._stamp is not None:
            step = (stamp - self._stamp) * self.base
            if step < 0 or step > max(self.max_gap_s, PAUSE_STEPS * self.usual_s):
                self.jump = Jump(self.last + self.usual_s, step - self.usual_s)
                step = self.usual_s
        self._stamp = self._stamp if stamp is None else stamp
        self.last, self._count = self.last + step, self._count + 1
        return self.last

    def move(self, time_s: float) -> None:
        """Show the last frame at this time instead, and later ones after it."""
        self._moved += time_s - self.last
        self.last = time_s

    @property
    def duration(self) -> float:
        """Return the duration as file readers count it: the last frame has the mean length."""
        return self.last + self.usual_s
