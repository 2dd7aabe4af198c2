"""Frames of a file or a pipe on the token grid, decoded on a thread of their own.

A file waits for its reader: no frame is lost. A live source does not wait, so frames that were not
taken in time are dropped, oldest first, in whole hops, and counted; the backlog from loading the
models is worked off. Files use the same reader as all tools, and a pipe gives the same frames: the
last one displayed at each time of the grid. Where time stamps jump, a hop ends, and the next one is
marked.
"""

from __future__ import annotations

import os
import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import TIME_TOLERANCE, Sampling, cut_steps, token_count
from pjepa.ui.console import InputError
from pjepa.video.index import DECODE_ORDER
from pjepa.video.reader import Frames, Reader, Upright, open_video
from pjepa.video.timeline import Clock, Jump

if TYPE_CHECKING:
    from torch import Tensor  # the command line loads without torch

# Bytes of a pipe, read as they arrive, so that a camera never waits for models to load.

PIPE = STDOUT = "-"  # the name of standard input as a source, of standard output as a file
CHUNK = 1 << 16
LIMIT = 64 << 20  # bytes that may wait: a minute of 8 Mbit/s; then the writer waits too
POLL_S = 0.1


class Pipe:
    """Standard input as a file that PyAV can read; `arrived` is when its last bytes came."""

    def __init__(self, descriptor: int = 0, limit: int = LIMIT) -> None:
        self.descriptor, self.limit = descriptor, limit
        self.arrived = time.monotonic()  # when the bytes came that `read` gave last
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._waiting, self._ended, self._closed = 0, False, False
        self._changed = threading.Condition()
        threading.Thread(target=self._fill, name="pipe", daemon=True).start()

    @property
    def is_file(self) -> bool:
        """Return whether standard input is a regular file (`< take.ts`), which can wait."""
        return stat.S_ISREG(os.fstat(self.descriptor).st_mode)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes that arrived together; empty at the end or when closed."""
        with self._changed:
            while not self._chunks and not self._ended and not self._closed:
                self._changed.wait(POLL_S)
            if not self._chunks or self._closed:
                return b""
            self.arrived, chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft((self.arrived, chunk[size:]))
            self._waiting -= min(size, len(chunk))
            self._changed.notify_all()
            return chunk[:size]

    def close(self) -> None:
        """Stop reading; safe inside a signal handler."""
        self._closed = True

    def _fill(self) -> None:
        """Read bytes from the pipe (runs in its own thread)."""
        while not self._closed:
            try:
                chunk = os.read(self.descriptor, CHUNK)
            except OSError:  # no such descriptor: treat it as an empty pipe
                chunk = b""
            with self._changed:
                self._chunks.append((time.monotonic(), chunk))
                self._waiting += len(chunk)
                self._ended = not chunk
                self._changed.notify_all()
                while self._waiting > self.limit and not self._closed:
                    self._changed.wait(POLL_S)
            if not chunk:
                return


STREAMABLE = "pipe a container that is read from start to end, such as MPEG-TS"
WAITING = 2  # hops that may wait between the two threads
Prepare = Callable[[Frames], "Tensor"]  # uint8 [T, H, W, 3] -> [3, T, crop, crop]


@dataclass(frozen=True)
class Hop:
    """Consecutive steps of the grid, prepared for the backbone."""

    start: int  # the first step
    steps: int
    video: Tensor  # [3, steps * tubelet, crop, crop]
    arrived: float  # monotonic time at which its last frame came
    jump: Jump | None = None  # of the time stamps before its first frame


@dataclass(frozen=True)
class StepGrid:
    """The grid: `tubelet` frames a step, `tokens_fps` steps a second, `hop` steps at a time."""

    tokens_fps: float
    tubelet: int
    hop: int

    @property
    def fps(self) -> float:
        return self.tokens_fps * self.tubelet


@dataclass
class LiveSource:
    """A running source: iterate over `hops()`; `status` tells how it ended."""

    name: str  # a file, or - for standard input
    grid: StepGrid
    prepare: Prepare
    live: bool = False
    stall_s: float = 30.0
    start: int = 0  # steps before this one are skipped (a file), or
    shift: int = 0  # counted as done already (a pipe that continues)
    pipe: Pipe | None = None  # of the name -; opened here unless given
    video: Reader | None = None  # of another name; opened here unless given
    max_gap_s: float = MAX_GAP_S  # stamps of a pipe that are further apart jump
    frames: int = field(default=0, init=False)  # shown to the backbone, and
    dropped: int = field(default=0, init=False)  # not shown for lack of time
    damaged: int = field(default=0, init=False)  # packets of a pipe that gave no frame
    duration_s: float | None = field(default=None, init=False)  # of a file that says so
    status: str = field(default="running", init=False)

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[Hop | None] = queue.Queue(WAITING)
        self._stop = threading.Event()
        self._ready_at, self._came = time.monotonic(), 0  # frames of a pipe, hops of a file
        if self.name == PIPE and self.pipe is None:
            self.pipe = Pipe()
        if self.pipe is None:
            self.video = self.video or open_video(Path(self.name))
            self.duration_s = self.video.info.duration_s
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    def hops(self) -> Iterator[Hop]:
        """Yield hops in order until the source ends, stalls or `stop()` is called.

        A pause is counted in polls: time in which this process was not scheduled does not count.
        """
        self._ready_at, seen, polls = time.monotonic(), 0, 0
        self._thread.start()
        while not self._stop.is_set():
            try:
                hop = self._waiting.get(timeout=POLL_S)
            except queue.Empty:
                seen, polls = self._came, polls + 1 if seen == self._came else 0
                if polls * POLL_S > self.stall_s:
                    self.status = f"stalled: no frame for {self.stall_s:g} s"
                    self.stop()
                continue
            if hop is None:
                return
            self.frames += hop.steps * self.grid.tubelet
            yield hop
            polls = 0  # nor is a busy reader a pause
        if self.status == "running":
            self.status = "stopped"

    def stop(self) -> None:
        """Stop the source; waiting hops are discarded."""
        self._stop.set()
        if self.pipe is not None:
            self.pipe.close()

    def _run(self) -> None:
        """Run the decoding thread."""
        try:
            if self.video is not None:
                with self.video:
                    self._read(self.video)
            elif self.pipe is not None:
                self._decode(self.pipe)
            status = "ended"
        except InputError as error:
            status = f"failed: {error}"
        except av.FFmpegError as error:
            status = f"failed: {_reason(error)}"
            if self.pipe is not None and not self.frames:
                status += f"; {STREAMABLE}"
        except Exception as error:  # a fault of ours must not look like a pause of the source
            status = f"failed: {type(error).__name__}: {error}"
        if not self._stop.is_set():
            self.status = status
        self.hand_over(None)

    def _read(self, video: Reader) -> None:
        """Read a file, starting with the hop that holds step `start`."""
        grid, info = self.grid, video.info
        steps = token_count(info.duration_s, grid.tokens_fps)
        jumps = {cut_steps([jump.time_s], grid.tokens_fps)[0]: jump for jump in info.jumps}
        sampling = Sampling(grid.tokens_fps, grid.tubelet, grid.hop, "take")
        for hop in sampling.windows(steps, jumps_s=info.jumps_s):
            if hop.stop <= self.start:
                continue
            if self._stop.is_set():
                return
            times = np.arange(hop.start * grid.tubelet, hop.stop * grid.tubelet) / grid.fps
            frames = self.prepare(video.frames(times))
            self._came += 1
            now, jump = time.monotonic(), jumps.get(hop.start)
            self.hand_over(Hop(hop.start, hop.tokens, frames, now, jump))

    def _decode(self, pipe: Pipe) -> None:
        """Decode a pipe from its first frame."""
        with _opened(pipe) as container:
            stream = container.streams.video[0]
            stream.thread_type = "SLICE"
            in_order = container.format.name in DECODE_ORDER
            rate = float(stream.average_rate or 25)
            clock = Clock(float(stream.time_base or 0), rate, self.max_gap_s)
            cutter, shown = _Cutter(self, pipe), None
            for frame in self._decoded(container, stream):
                if self._stop.is_set():
                    return
                self._came += 1
                moment = clock.time(frame.dts if in_order else frame.pts)
                if shown is not None:
                    cutter.show(shown, until=moment)
                if clock.jump is not None:
                    clock.move(cutter.begin_anew(shown, clock.jump))
                shown = frame
            if shown is not None:
                cutter.show(shown, steps=token_count(clock.duration, self.grid.tokens_fps))
                cutter.flush()

    def _decoded(self, container: Any, stream: Any) -> Iterator[Any]:
        """Yield the frames of a pipe; what is damaged is left out and does not end it."""
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.EOFError:
                return
            except av.FFmpegError:
                self.damaged += 1
                continue
            for frame in frames:
                if frame.is_corrupt:
                    self.damaged += 1
                else:
                    yield frame

    def hand_over(self, hop: Hop | None) -> None:
        """Hand a hop to the reader: wait for it (file), or drop the oldest hop (live source)."""
        hurries = self.live and hop is not None and hop.arrived > self._ready_at
        while not self._stop.is_set():
            try:
                self._waiting.put(hop, timeout=0 if hurries else POLL_S)
                return
            except queue.Full:
                if hurries:
                    with suppress(queue.Empty):  # the reader was faster
                        lost = self._waiting.get_nowait()
                        self.dropped += 0 if lost is None else lost.steps * self.grid.tubelet


class _Cutter:
    """Frames in, hops out: one picture for every time of the grid."""

    def __init__(self, source: LiveSource, pipe: Pipe) -> None:
        self.source, self.grid, self.pipe = source, source.grid, pipe
        self.next = 0  # place on the grid
        self.jump: Jump | None = None  # before the pictures that are here
        self.pictures: list[Frames] = []
        self.upright = Upright()

    def show(self, frame: Any, until: float = np.inf, steps: int | None = None) -> None:
        """Show `frame` until then, or until the end of a take with that many steps."""
        last = np.inf if steps is None else steps * self.grid.tubelet
        picture: Frames | None = None
        while self.next < last and self.next / self.grid.fps + TIME_TOLERANCE < until:
            picture = self.upright(frame) if picture is None else picture
            self.pictures.append(picture)
            self.next += 1
            if len(self.pictures) == self.grid.hop * self.grid.tubelet:
                self.flush()

    def begin_anew(self, frame: Any, jump: Jump) -> float:
        """Complete the step of `frame`, the last before a jump; return the next step's time."""
        self.show(frame, steps=-(-self.next // self.grid.tubelet))
        self.flush()
        self.jump = jump
        return self.next / self.grid.fps

    def flush(self) -> None:
        """Hand over the frames so far; only the last hop of a take or part is shorter."""
        steps = len(self.pictures) // self.grid.tubelet
        if steps:
            video = self.source.prepare(np.stack(self.pictures))
            start = self.source.shift + self.next // self.grid.tubelet - steps
            self.source.hand_over(Hop(start, steps, video, self.pipe.arrived, self.jump))
            self.jump = None
        self.pictures = []


def _opened(pipe: Pipe) -> Any:
    """Return the open container; raise if it cannot be read."""
    try:
        container = av.open(pipe)
    except (av.FFmpegError, OSError) as error:
        raise InputError(
            f"standard input: no video that can be decoded ({_reason(error)}); {STREAMABLE}"
        ) from None
    if not container.streams.video:
        container.close()
        raise InputError("standard input: has no video stream; check what it holds")
    return container


def _reason(error: av.FFmpegError | OSError) -> str:
    """Return the decoder's message on one line."""
    return " ".join((error.strerror or str(error) or type(error).__name__).split())
