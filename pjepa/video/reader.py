"""Frames of a video by time: decord where it exists, PyAV elsewhere, equal frames from both.

Times count from the first displayed frame and frames stand upright, whatever the container says.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.errors import InputError
from pjepa.video.index import (
    FrameIndex,
    Times,
    VideoInfo,
    damaged,
    frame_index,
    unreadable,
    video_stream,
)
from pjepa.video.sampling import frame_indices

Frames = NDArray[np.uint8]  # [T, H, W, 3], RGB
ReaderName = Literal["auto", "decord", "pyav"]

INDEXED = {".mp4", ".m4v", ".mov", ".mkv", ".webm"}  # decord seeks wrongly in other containers
NARROW = 80  # pixels; decord miscounts the channels of frames 16, 24, 48 or 72 wide
SEEK_AHEAD = 256  # frames; decoding this far is cheaper than seeking
REOPEN_FRAMES = 4096  # decord never gives back what decoding took (decord#208): start afresh


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
    index = frame_index(path)
    if reader == "pyav" or (reader == "auto" and not _decord_is_safe(path, index.info)):
        return PyavReader(path, index)
    try:
        return DecordReader(path, index)
    except InputError:
        if reader == "decord":
            raise
        return PyavReader(path, index)  # a codec that decord does not know


def _decord_is_safe(path: Path, info: VideoInfo) -> bool:
    installed = importlib.util.find_spec("decord") is not None
    wide = min(info.width, info.height) >= NARROW
    return installed and wide and path.suffix.lower() in INDEXED


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

    def __init__(self, path: Path, index: FrameIndex) -> None:
        if importlib.util.find_spec("decord") is None:
            raise InputError("patches.reader=decord: decord is not installed; use pyav")
        self.path, self.index, self.info = path, index, index.info
        self._open()

    def _open(self) -> None:
        import decord

        try:
            self._video = decord.VideoReader(str(self.path), ctx=decord.cpu(0), num_threads=1)
        except (decord.DECORDError, RuntimeError):
            raise unreadable(self.path, "decord cannot open it") from None
        if len(self._video) != len(self.info.times_s):
            found = f"{len(self._video)} frames of {len(self.info.times_s)}"
            raise unreadable(self.path, f"decord finds {found}")
        self._opened_at = -1  # index of the first frame decoded since

    def __enter__(self) -> "DecordReader":
        return self

    def frames(self, times_s: Times) -> Frames:
        """The frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        if self._opened_at >= 0 and abs(int(wanted[-1]) - self._opened_at) > REOPEN_FRAMES:
            del self._video  # first, or both would be held at once
            self._open()
        if self._opened_at < 0:
            self._opened_at = int(wanted[0])
        try:
            batch: Frames = self._video.get_batch(wanted.tolist()).asnumpy()
        except Exception:  # decord raises its own class for every decoding failure
            raise damaged(self.path, self.index, "decord") from None
        return batch[back]

    def close(self) -> None:
        del self._video


class PyavReader(_Closing):
    """Frames through PyAV: decodes forward, seeks only backwards or far ahead."""

    def __init__(self, path: Path, index: FrameIndex) -> None:
        self.path, self.index = path, index
        self._ticks, self.info = index.ticks, index.info
        self._container = av.open(str(path))
        self._stream = video_stream(self._container, path)
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
            if len(pictures) < len(wanted):  # sought past a frame: its key frame lies further back
                self._seek(0)
                pictures = list(self._decode(wanted, seek=False))
        except av.FFmpegError:
            raise damaged(self.path, self.index, "pyav") from None
        if len(pictures) < len(wanted):
            raise damaged(self.path, self.index, "pyav")
        return np.stack(pictures)[back]

    def _seek(self, number: int) -> None:
        self._container.seek(int(self._ticks[number]), stream=self._stream)
        self._next = self._container.decode(self._stream)

    def _decode(self, wanted: NDArray[np.int64], seek: bool = True) -> Iterator[Frames]:
        """Upright pictures of the wanted frames (increasing indices), as far as there are any."""
        far = wanted[0] <= self._decoded or wanted[0] > self._decoded + SEEK_AHEAD
        if seek and far:
            self._seek(wanted[0])
        remaining = iter(wanted.tolist())
        target = next(remaining, None)
        while target is not None and (frame := next(self._next, None)) is not None:
            self._decoded = int(np.searchsorted(self._ticks, frame.pts or 0))
            if self._decoded > target:
                return
            if self._decoded == target:
                yield upright(frame)
                target = next(remaining, None)

    def close(self) -> None:
        self._container.close()


def upright(frame: av.VideoFrame) -> Frames:
    """The picture as displayed, uint8 [H, W, 3]."""
    picture = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(picture, k=frame.rotation // 90))
