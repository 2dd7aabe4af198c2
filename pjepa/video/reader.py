"""Frames of a video by time: decord where it exists, PyAV elsewhere, equal frames from both.

Times count from the first displayed frame and frames stand upright, whatever the container says.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.errors import InputError
from pjepa.video.sampling import frame_indices

Frames = NDArray[np.uint8]  # [T, H, W, 3], RGB
Times = NDArray[np.float64]
ReaderName = Literal["auto", "decord", "pyav"]

INDEXED = {".mp4", ".m4v", ".mov", ".mkv", ".webm"}  # decord seeks wrongly in other containers
NARROW = 80  # pixels; decord miscounts the channels of frames 16, 24, 48 or 72 wide
SEEK_AHEAD = 256  # frames; decoding this far is cheaper than seeking


@dataclass(frozen=True)
class VideoInfo:
    """What the file says about itself; `times_s` is the presentation time of every frame."""

    fps: float
    duration_s: float
    width: int
    height: int
    times_s: Times


@dataclass(frozen=True)
class FrameIndex:
    """Presentation stamps of all frames, in the stream's time base, and what they amount to."""

    ticks: NDArray[np.int64]
    info: VideoInfo


class Reader(Protocol):
    """One open video; a reader is also a context manager."""

    info: VideoInfo

    def frames(self, times_s: Times) -> Frames:
        """The frames displayed at those times, uint8 [T, H, W, 3]."""
        ...

    def __enter__(self) -> "Reader": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_video(path: Path, reader: ReaderName = "auto") -> Reader:
    """A reader of the video; `auto` takes decord where it is installed and safe, else PyAV."""
    if not path.is_file():
        raise InputError(f"{path}: no such video; check the data root")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the video file is empty; fetch or export it again")
    index = frame_index(path)
    if reader == "decord" or (reader == "auto" and _decord_is_safe(path, index.info)):
        return DecordReader(path, index.info)
    return PyavReader(path, index)


def _decord_is_safe(path: Path, info: VideoInfo) -> bool:
    installed = importlib.util.find_spec("decord") is not None
    wide = min(info.width, info.height) >= NARROW
    return installed and wide and path.suffix.lower() in INDEXED


def _unreadable(path: Path, error: Exception | str) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"{path}: cannot be decoded ({reason}); re-encode or remove this video")


def presentation_ticks(path: Path) -> NDArray[np.int64]:
    """Sorted presentation stamps of all displayed frames, in the stream's time base."""
    with av.open(str(path)) as container:
        packets = container.demux(container.streams.video[0])
        ticks = {p.pts for p in packets if p.pts is not None and not p.is_discard}
    return np.array(sorted(ticks), dtype=np.int64)


def video_info(path: Path, ticks: NDArray[np.int64]) -> VideoInfo:
    """What the stream header and the presentation stamps say; upright width and height."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        first = next(container.decode(stream))
        times = (ticks - ticks[0]) * float(stream.time_base or 1)
        span = float(times[-1])
        nominal = float(stream.average_rate or stream.guessed_rate or 1)
    fps = (len(times) - 1) / span if span > 0 else nominal
    turned = first.rotation % 180 != 0
    width, height = (first.height, first.width) if turned else (first.width, first.height)
    return VideoInfo(fps, span + 1 / fps, width, height, times)


def frame_index(path: Path) -> FrameIndex:
    """The index of a video; one that cannot be decoded is refused."""
    try:
        ticks = presentation_ticks(path)
        if not len(ticks):
            raise _unreadable(path, "no frames")
        return FrameIndex(ticks, video_info(path, ticks))
    except (av.FFmpegError, IndexError, StopIteration) as error:
        raise _unreadable(path, error) from None


class _Closing:
    """Context manager that calls `close`."""

    def close(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class DecordReader(_Closing):
    """Frames through decord; times from the container, because decord's are float32."""

    def __init__(self, path: Path, info: VideoInfo) -> None:
        import decord

        self.path, self.info = path, info
        try:
            self._video = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
        except (decord.DECORDError, RuntimeError) as error:
            raise _unreadable(path, error) from None
        if len(self._video) != len(self.info.times_s):
            found = f"{len(self._video)} frames of {len(self.info.times_s)}"
            raise _unreadable(path, f"decord finds {found}")

    def __enter__(self) -> "DecordReader":
        return self

    def frames(self, times_s: Times) -> Frames:
        """The frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        try:
            batch: Frames = self._video.get_batch(wanted.tolist()).asnumpy()
        except Exception as error:  # decord raises its own class for every decoding failure
            raise _unreadable(self.path, error) from None
        return batch[back]

    def close(self) -> None:
        del self._video


class PyavReader(_Closing):
    """Frames through PyAV: decodes forward, seeks only backwards or far ahead."""

    def __init__(self, path: Path, index: FrameIndex) -> None:
        self.path = path
        self._ticks, self.info = index.ticks, index.info
        self._container = av.open(str(path))
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "SLICE"
        self._next = self._container.decode(self._stream)
        self._decoded = -1  # index of the last decoded frame

    def __enter__(self) -> "PyavReader":
        return self

    def frames(self, times_s: Times) -> Frames:
        """The frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        try:
            pictures = list(self._decode(wanted))
        except av.FFmpegError as error:
            raise _unreadable(self.path, error) from None
        if len(pictures) < len(wanted):
            raise _unreadable(self.path, f"{len(wanted) - len(pictures)} frames are missing")
        return np.stack(pictures)[back]

    def _decode(self, wanted: NDArray[np.int64]) -> Iterator[Frames]:
        """Upright pictures of the wanted frames (increasing indices)."""
        if wanted[0] <= self._decoded or wanted[0] > self._decoded + SEEK_AHEAD:
            self._container.seek(int(self._ticks[wanted[0]]), stream=self._stream)
            self._next = self._container.decode(self._stream)
        remaining = iter(wanted.tolist())
        target = next(remaining, None)
        while target is not None and (frame := next(self._next, None)) is not None:
            self._decoded = int(np.searchsorted(self._ticks, frame.pts or 0))
            if self._decoded == target:
                yield upright(frame)
                target = next(remaining, None)

    def close(self) -> None:
        self._container.close()


def upright(frame: av.VideoFrame) -> Frames:
    """The picture as displayed, uint8 [H, W, 3]."""
    picture = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(picture, k=frame.rotation // 90))
