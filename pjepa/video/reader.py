"""Frames of a video by time, and never another frame than the one asked for.

Times count from the first displayed frame and frames stand upright, whatever the container says.
PyAV reads everything and is the faster one. decord seeks by a table of its own, says nothing about
damage and does not tell which frame it returns: it is used where all of that can be known before.
"""

import importlib.util
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from pjepa.core.section import ReaderName
from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import frame_indices
from pjepa.ui.console import InputError
from pjepa.video.decoder import AstrayError, Decoder
from pjepa.video.index import (
    AGAIN,
    MATROSKA,
    MP4,
    FrameIndex,
    Times,
    counted_frames,
    displayed_size,
    frame_index,
    unreadable,
)

Frames = NDArray[np.uint8]  # [T, H, W, 3], RGB
NARROW = 80  # pixels; decord miscounts the channels of frames 16, 24, 48 or 72 wide
REOPEN_FRAMES = 4096  # decord never gives back what decoding took (decord#208): start afresh


class Reader(ABC):
    """One open video; a reader is also a context manager."""

    def __init__(self, path: Path, index: FrameIndex) -> None:
        self.path, self.index, self.info = path, index, index.info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def stand_ins(self) -> int:
        """Return how many frames so far were replaced by the one before."""
        return 0

    def fault(self) -> InputError | None:
        """Return the error if any frame cannot be decoded; reads the whole file."""
        return damage(self.path, self.index)

    @abstractmethod
    def frames(self, times_s: Times) -> Frames:
        """Return the frames displayed at those times, uint8 [T, H, W, 3]."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def open_video(
    path: Path, reader: ReaderName = "auto", max_gap_s: float = MAX_GAP_S, repeats: bool = False
) -> Reader:
    """Return a reader of the video: PyAV, or decord if asked for and right for this file.

    `max_gap_s`: stamps further apart jump. `repeats`: the frame before replaces a lost one.

    decord takes 2.5 times the CPU time of PyAV (`python -m benchmarks.extract`): it decodes frames
    that nobody asked for. So `auto` is PyAV.
    """
    index = frame_index(path, max_gap_s)
    if reader == "decord" and decord_fault(path, index) is None:
        return DecordReader(path, index)
    return PyavReader(path, index, repeats)


def damage(path: Path, index: FrameIndex) -> InputError | None:
    """Return the error of a file with damaged frames: how many, and where."""
    try:
        lost = np.flatnonzero(lost_frames(path, index))
    except av.FFmpegError as error:
        return unreadable(path, error)
    if len(lost):
        first, last = index.info.times_s[lost[[0, -1]]]
        return InputError(
            f"{path}: {len(lost)} of {len(index.ticks)} frames cannot be decoded, from "
            f"{first:.1f} to {last:.1f} s; {AGAIN}, or leave the take out"
        )
    if index.counted is not None and index.counted.failed:
        return unreadable(path, f"{index.counted.failed} packets give no frame")
    return None


def lost_frames(path: Path, index: FrameIndex) -> NDArray[np.bool_]:
    """Return which frames [N] cannot be decoded as they were encoded; reads the whole file.

    What follows a damaged frame refers to it, until the next key frame.
    """
    if index.counted is not None:
        return ~index.counted.sound
    found = counted_frames(path)
    sound: NDArray[np.bool_] = np.isin(index.ticks, found.stamps[found.sound, 0])
    return ~sound


class Upright:
    """Pictures as displayed, uint8 [H, W, 3], of the frames of one video, all of one size.

    One converter serves all frames: PyAV would set up another for each, with threads of its own.
    """

    def __init__(self, size: tuple[int, int] | None = None) -> None:
        """Use this size (height, width), or that of the first frame."""
        self._size = size
        self._converter = VideoReformatter()

    def __call__(self, frame: av.VideoFrame) -> Frames:
        turned = frame.rotation % 180 != 0
        self._size = self._size or displayed_size(frame)
        height, width = self._size[::-1] if turned else self._size
        plain = self._converter.reformat(frame, width, height, "rgb24", threads=1)
        picture = np.asarray(plain.to_ndarray(), np.uint8)
        return np.rot90(picture, k=frame.rotation // 90) if frame.rotation else picture


class PyavReader(Reader):
    """Frames through PyAV: quickly where the file is as it says, else from its start on.

    `repeats`: the frame before replaces one that cannot be decoded; `stand_ins` counts them.
    """

    def __init__(self, path: Path, index: FrameIndex, repeats: bool = False) -> None:
        super().__init__(path, index)
        self.repeats, self._upright = repeats, Upright((self.info.height, self.info.width))
        self._lost: NDArray[np.bool_] | None = None  # known from the first damage on
        self._repeated: set[int] = set()
        self._last: dict[int, Frames] = {}  # the last pictures, where going back is expensive
        self._decoder = Decoder(path, index, hurries=True, tolerant=False)
        if index.counted is not None and (index.counted.failed or not index.counted.sound.all()):
            self._know_damage()

    @property
    def stand_ins(self) -> int:
        return len(self._repeated)

    def frames(self, times_s: Times) -> Frames:
        numbers = frame_indices(times_s, self.info.times_s)
        if self._lost is None:
            try:
                return self._filled(numbers)
            except (av.FFmpegError, AstrayError):
                self._know_damage()
        try:
            return self._filled(self._allowed(numbers))
        except (av.FFmpegError, AstrayError):
            raise self._refusal() from None

    def close(self) -> None:
        self._decoder.close()

    def _know_damage(self) -> None:
        """Find which frames are lost; from here on, decode from the start of the file."""
        self._lost = lost_frames(self.path, self.index)
        self._decoder.close()
        self._decoder = Decoder(self.path, self.index, hurries=False, tolerant=True)

    def _allowed(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the frames to show: themselves, or the frame before where allowed."""
        lost = self._lost
        if lost is None or not lost[numbers].any():
            return numbers
        if not self.repeats or lost.all():
            raise self._refusal()
        self._repeated.update(numbers[lost[numbers]].tolist())
        return stand_ins(lost)[numbers]

    def _filled(self, numbers: NDArray[np.int64]) -> Frames:
        """Return pictures of the frames of these numbers."""
        once, back = np.unique(numbers, return_inverse=True)
        pictures = np.empty((len(once), self.info.height, self.info.width, 3), np.uint8)
        self._decoder.expect(once)
        for index, number in enumerate(once.tolist()):
            last = self._last.get(number)
            pictures[index] = self._upright(self._decoder.frame(number)) if last is None else last
        if not self._decoder.hurries:
            self._last = dict(zip(once.tolist(), pictures, strict=True))
        return pictures if len(back) == len(once) else pictures[back]

    def _refusal(self) -> InputError:
        reason = "its frames are not those that its packets promise"
        return damage(self.path, self.index) or unreadable(self.path, reason)


def stand_ins(lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the frame shown for each [N]: itself, the last good one before, or the first."""
    numbers = np.where(lost, -1, np.arange(len(lost)))
    shown = np.maximum.accumulate(numbers)
    return np.where(shown < 0, int(np.argmin(lost)), shown).astype(np.int64)


def decord_fault(path: Path, index: FrameIndex) -> str | None:
    """Return why decord would misread this file; None if every frame will be right.

    Decodes the file once with PyAV: decord hides damage silently.
    """
    info, packets, kind = index.info, index.packets, index.container
    if importlib.util.find_spec("decord") is None:
        return "decord is not installed"
    if kind not in (MP4, MATROSKA) or index.counted is not None:
        return f"decord seeks wrongly in {kind}"
    if kind == MP4 and not index.promised:
        return "decord numbers the frames of a fragmented file wrongly"
    if min(info.width, info.height) < NARROW:
        return "decord misreads narrow pictures"
    if not packets.shown.all():
        return "decord counts frames that are not displayed"
    if not packets.key[0] or packets.leading:
        return "decord loses frames shown before the key frame that they follow"
    if (fault := damage(path, index)) is not None:
        return str(fault)
    try:
        video = _decord(path)
        starts = video.get_frame_timestamp(range(len(video)))[:, 0]
    except Exception:  # decord raises its own class for everything
        return "decord cannot open it"
    if len(starts) != len(index.ticks):
        return f"decord finds {len(starts)} frames of {len(index.ticks)}"
    step = float(np.diff(info.times_s).min()) if len(starts) > 1 else 1.0
    if np.abs(starts - starts[0] - info.times_s).max() > max(step / 4, 1e-5 * info.duration_s):
        return "decord shows frames at other times"
    return None


def _decord(path: Path) -> Any:
    import decord

    return decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)


class DecordReader(Reader):
    """Frames through decord; times from the container, because decord's are float32."""

    def __init__(self, path: Path, index: FrameIndex) -> None:
        super().__init__(path, index)
        self._video, self._opened_at = _decord(path), -1  # number of the first frame decoded since

    def frames(self, times_s: Times) -> Frames:
        numbers, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        if self._opened_at >= 0 and abs(int(numbers[-1]) - self._opened_at) > REOPEN_FRAMES:
            del self._video  # first, or both would be held at once
            self._video, self._opened_at = _decord(self.path), -1
        if self._opened_at < 0:
            self._opened_at = int(numbers[0])
        try:
            batch: Frames = self._video.get_batch(numbers.tolist()).asnumpy()
        except Exception as error:  # decord raises its own class for every decoding failure
            raise unreadable(self.path, f"decord: {error}") from None
        return batch if len(back) == len(numbers) else batch[back]

    def close(self) -> None:
        del self._video
