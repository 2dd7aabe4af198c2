"""Frames of a file or a pipe on the token grid, decoded on a thread of their own.

A file waits for whoever reads it: no frame is lost. A live source does not wait, so frames that
nobody could take in time are dropped, oldest first, in whole hops, and counted; what came while
models were loading is caught up with. Frames are those that the file reader would choose: the last
one displayed at each time of the grid.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
from torch import Tensor

from pjepa.errors import InputError
from pjepa.live.pipe import PIPE, POLL_S, Pipe
from pjepa.video.reader import Frames, Upright
from pjepa.video.sampling import TIME_TOLERANCE, token_count

STREAMABLE = "pipe a container that is read from start to end, such as MPEG-TS"
WAITING = 2  # hops that may wait between the two threads
Prepare = Callable[[Frames], Tensor]  # uint8 [T, H, W, 3] -> [3, T, crop, crop]


@dataclass(frozen=True)
class Hop:
    """Consecutive steps of the grid, prepared for the backbone."""

    start: int  # the first step
    steps: int
    video: Tensor  # [3, steps * tubelet, crop, crop]
    arrived: float  # monotonic time at which its last frame came


@dataclass(frozen=True)
class Grid:
    """`tubelet` frames to a step, `tokens_fps` steps a second, handed over `hop` at a time."""

    tokens_fps: float
    tubelet: int
    hop: int

    @property
    def fps(self) -> float:
        return self.tokens_fps * self.tubelet


@dataclass
class Source:
    """One running source: iterate over `hops()`; `status` says how it ended."""

    name: str  # a file, or - for standard input
    grid: Grid
    prepare: Prepare
    live: bool = False
    stall_s: float = 30.0
    start: int = 0  # steps before this one are skipped (a file), or
    shift: int = 0  # counted as done already (a pipe that continues)
    pipe: Pipe | None = None  # of the name -; opened here if nobody did before
    frames: int = field(default=0, init=False)  # shown to the backbone, and
    dropped: int = field(default=0, init=False)  # not shown for lack of time
    duration_s: float | None = field(default=None, init=False)  # of a file that says so
    status: str = field(default="running", init=False)

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[Hop | None] = queue.Queue(WAITING)
        self._stop = threading.Event()
        self._ready_at = self._decoded_at = time.monotonic()
        if self.name == PIPE and self.pipe is None:
            self.pipe = Pipe()
        self._container = _opened(self.name) if self.pipe is None else None
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)
        if self._container is not None and self._container.duration:
            self.duration_s = self._container.duration / av.time_base

    def hops(self) -> Iterator[Hop]:
        """Hops in order until the source ends, stalls or `stop()` is called."""
        self._ready_at = self._decoded_at = time.monotonic()
        self._thread.start()
        while not self._stop.is_set():
            try:
                hop = self._waiting.get(timeout=POLL_S)
            except queue.Empty:
                if time.monotonic() - self._decoded_at > self.stall_s:
                    self.status = f"stalled: no frame for {self.stall_s:g} s"
                    self.stop()
                continue
            if hop is None:
                return
            self.frames += hop.steps * self.grid.tubelet
            yield hop
            self._decoded_at = max(self._decoded_at, time.monotonic() if not self.live else 0.0)
        if self.status == "running":
            self.status = "stopped"

    def stop(self) -> None:
        """Ends the source; hops that wait are not taken."""
        self._stop.set()
        if self.pipe is not None:
            self.pipe.close()

    def _run(self) -> None:
        """The decoding thread."""
        try:
            container = self._container or _opened(self.name, self.pipe)
            with container:
                self._decode(container)
            status = "ended"
        except InputError as error:
            status = f"failed: {error}"
        except av.FFmpegError as error:
            status = f"failed: {_reason(error)}"
            if self.pipe is not None and not self.frames:
                status += f"; {STREAMABLE}"
        if not self._stop.is_set():
            self.status = status
        self._hand_over(None)

    def _decode(self, container: Any) -> None:
        stream = container.streams.video[0]
        stream.thread_type = "SLICE"
        clock = _Clock(float(stream.time_base or 0), float(stream.average_rate or 25))
        cutter = _Cutter(
            self.grid, self.prepare, self._arrived, self.start, self.shift, self._hand_over
        )
        shown: Any = None
        for frame in container.decode(stream):
            if self._stop.is_set():
                return
            self._decoded_at = time.monotonic()
            moment = clock.time(frame)
            if shown is not None:
                cutter.show(shown, until=moment)
            shown = frame
        if shown is not None:
            count = token_count(clock.duration, self.grid.tokens_fps)
            cutter.show(shown, steps=count)
            cutter.flush()

    def _arrived(self) -> float:
        """When the frame that was decoded last came."""
        return time.monotonic() if self.pipe is None else self.pipe.arrived

    def _hand_over(self, hop: Hop | None) -> None:
        """Gives a hop to the reader: waits for it, or drops the oldest one where life goes on."""
        hurries = self.live and hop is not None and hop.arrived > self._ready_at
        while not self._stop.is_set():
            try:
                self._waiting.put(hop, timeout=0 if hurries else POLL_S)
                return
            except queue.Full:
                if hurries:
                    self._drop_oldest()

    def _drop_oldest(self) -> None:
        try:
            lost = self._waiting.get_nowait()
        except queue.Empty:
            return
        if lost is not None:
            self.dropped += lost.steps * self.grid.tubelet


class _Clock:
    """Times of frames, counted from the first one displayed."""

    def __init__(self, time_base: float, nominal_fps: float) -> None:
        self.time_base, self.nominal = time_base, nominal_fps
        self.first: int | None = None
        self.count, self.last = 0, 0.0

    def time(self, frame: Any) -> float:
        """Seconds of this frame; without a stamp, one nominal frame after the last."""
        if frame.pts is None:
            self.last = self.last + 1 / self.nominal if self.count else 0.0
        else:
            self.first = frame.pts if self.first is None else self.first
            self.last = (frame.pts - self.first) * self.time_base
        self.count += 1
        return self.last

    @property
    def duration(self) -> float:
        """As the file reader counts it: the last frame lasts as long as the mean one."""
        fps = (self.count - 1) / self.last if self.last > 0 else self.nominal
        return self.last + 1 / fps


class _Cutter:
    """Frames in, hops out: one picture for every time of the grid."""

    def __init__(
        self,
        grid: Grid,
        prepare: Prepare,
        arrived: Callable[[], float],
        start: int,
        shift: int,
        hand_over: Callable[[Hop], None],
    ) -> None:
        self.grid, self.prepare, self.arrived, self.hand_over = grid, prepare, arrived, hand_over
        self.next, self.first, self.shift = 0, start * grid.tubelet, shift  # places on the grid
        self.pictures: list[Frames] = []
        self.upright = Upright()

    def show(self, frame: Any, until: float = np.inf, steps: int | None = None) -> None:
        """`frame` is displayed until then, or until the end of a take of so many steps."""
        last = np.inf if steps is None else steps * self.grid.tubelet
        picture: Frames | None = None
        while self.next < last and self.next / self.grid.fps + TIME_TOLERANCE < until:
            if self.next >= self.first:
                picture = self.upright(frame) if picture is None else picture
                self.pictures.append(picture)
            self.next += 1
            if len(self.pictures) == self.grid.hop * self.grid.tubelet:
                self.flush()

    def flush(self) -> None:
        """Hands over what is there; only the last hop of a take is shorter."""
        steps = len(self.pictures) // self.grid.tubelet
        if steps:
            video = self.prepare(np.stack(self.pictures))
            start = self.shift + self.next // self.grid.tubelet - steps
            self.hand_over(Hop(start, steps, video, self.arrived()))
        self.pictures = []


def _opened(name: str, pipe: Pipe | None = None) -> Any:
    """The open container; what cannot be read is named."""
    what = "standard input" if name == PIPE else name
    try:
        container = av.open(name if pipe is None else pipe)
    except (av.FFmpegError, OSError) as error:
        hint = STREAMABLE if name == PIPE else "check the file"
        raise InputError(
            f"{what}: no video that can be decoded ({_reason(error)}); {hint}"
        ) from None
    if not container.streams.video:
        container.close()
        raise InputError(f"{what}: has no video stream; check what it holds")
    return container


def _reason(error: av.FFmpegError | OSError) -> str:
    """The decoder's words, on one line."""
    return " ".join((error.strerror or str(error) or type(error).__name__).split())
