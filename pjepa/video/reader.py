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
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from pjepa.errors import InputError
from pjepa.video.index import (
    FrameIndex,
    Times,
    VideoInfo,
    damaged,
    displayed_size,
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
    """Frames through PyAV: decodes forward, seeks only backwards or far ahead.

    One thread, and few steps of Python per frame: the encoder shares the interpreter. Frames that
    nobody asked for and no other frame refers to are not decoded.
    """

    def __init__(self, path: Path, index: FrameIndex) -> None:
        self.path, self.index = path, index
        self._ticks, self.info = index.ticks, index.info
        self._upright = Upright(self.info.height, self.info.width)
        self._wanted: set[int] = set()  # stamps of the frames asked for
        self._until = int(self._ticks[0])  # what will be asked for from here on is not known yet
        self._skips = True
        self._open()

    def __enter__(self) -> "PyavReader":
        return self

    def frames(self, times_s: Times) -> Frames:
        """The frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        found = np.empty((len(wanted), self.info.height, self.info.width, 3), np.uint8)
        entries = self._entries(int(wanted[0]))
        while entries:
            entry = entries.pop(0)
            self._enter(entry)
            try:
                if self._read(wanted, found) == len(wanted):
                    return found if len(back) == len(wanted) else found[back]
            except (av.FFmpegError, _DamageError):
                del entries[:-1]  # only from the start on it is certain
            self._skips = False
        raise damaged(self.path, self.index, "pyav")

    def _entries(self, first: int) -> list[int]:
        """Frames to start decoding at until `first` comes out: -1 is here, the last is the start.

        A seek may end behind the frame, or in a group of frames that refers to the one before.
        """
        near = self._decoded < first <= self._decoded + SEEK_AHEAD
        return [-1 if near else first, *([first - SEEK_AHEAD] if first > SEEK_AHEAD else []), 0]

    def _enter(self, number: int) -> None:
        if number == 0:  # not every container can seek there
            self._container.close()
            self._open()
        elif number > 0:
            self._container.seek(int(self._ticks[number]), stream=self._stream)
            self._start(sound=False)

    def _open(self) -> None:
        self._container = av.open(str(self.path))
        self._stream = video_stream(self._container, self.path)
        self._stream.codec_context.thread_count = 1
        self._start(sound=True)

    def _start(self, sound: bool) -> None:
        self._next, self._decoded = self._decode(), -1  # index of the last decoded frame
        self._sound = sound  # frames before a point of entry may lack what they refer to

    def _read(self, wanted: NDArray[np.int64], found: Frames) -> int:
        """Fills in the wanted frames (increasing indices); how many came before one was missing."""
        ticks = self._ticks[wanted].tolist()
        self._wanted, self._until = set(ticks), ticks[-1]
        place = 0
        for frame in self._next:
            stamp = frame.pts or 0
            if stamp < ticks[place]:
                continue
            self._decoded = int(np.searchsorted(self._ticks, stamp))
            if stamp > ticks[place]:
                return place
            found[place] = self._upright(frame)
            place += 1
            if place == len(ticks):
                return place
        return place

    def _decode(self) -> Iterator[av.VideoFrame]:
        """Frames in the order they are shown; damage that the decoder concealed is an error."""
        codec = self._stream.codec_context
        for packet in self._container.demux(self._stream):
            stamp = packet.pts
            known = self._skips and stamp is not None and stamp < self._until
            codec.skip_frame = "NONREF" if known and stamp not in self._wanted else "DEFAULT"
            for frame in packet.decode():
                if not frame.is_corrupt:
                    self._sound = True
                    yield frame
                elif self._sound:
                    raise _DamageError

    def close(self) -> None:
        self._container.close()


class _DamageError(Exception):
    """A frame was decoded, but not as it was encoded."""


class Upright:
    """Pictures as displayed, uint8 [H, W, 3], of the frames of one video, all of one size.

    One converter serves all frames: PyAV would set up another for each, with threads of its own.
    """

    def __init__(self, height: int | None = None, width: int | None = None) -> None:
        """Without a size: that of the first frame."""
        self._size = None if height is None or width is None else (height, width)
        self._converter = VideoReformatter()

    def __call__(self, frame: av.VideoFrame) -> Frames:
        turned = frame.rotation % 180 != 0
        if self._size is None:
            self._size = displayed_size(frame)
        height, width = self._size[::-1] if turned else self._size
        plain = self._converter.reformat(frame, width, height, "rgb24", threads=1)
        picture = np.asarray(plain.to_ndarray(), np.uint8)
        return np.rot90(picture, k=frame.rotation // 90) if frame.rotation else picture
