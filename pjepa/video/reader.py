"""Frames of a video by time, and never another frame than the one asked for.

Times count from the first displayed frame and frames stand upright, whatever the container says.
PyAV reads everything and is the faster one; decord reads what it is known to read right.
"""

from pathlib import Path
from typing import Protocol

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.core.section import ReaderName
from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import frame_indices
from pjepa.ui.console import InputError
from pjepa.video.decoder import AstrayError, Decoder, Frames, Upright, damage, lost_frames
from pjepa.video.decord import DecordReader, decord_fault
from pjepa.video.index import FrameIndex, Times, VideoInfo, frame_index, unreadable

# Frames of a file that cannot be decoded, and the error that reports them.


# Decoded frames as pictures, the way they are displayed.


# Frames through PyAV: quickly where the file is as it says, else from its start on.


class PyavReader:
    """Frames through PyAV.

    `repeats`: the frame before replaces one that cannot be decoded; `stand_ins` counts them.
    """

    def __init__(self, path: Path, index: FrameIndex, repeats: bool = False) -> None:
        self.path, self.index, self.info, self.repeats = path, index, index.info, repeats
        self._upright = Upright(self.info.height, self.info.width)
        self._lost: NDArray[np.bool_] | None = None  # known from the first damage on
        self._repeated: set[int] = set()
        self._kept: dict[int, Frames] = {}  # the last pictures, where going back is expensive
        self._decoder = Decoder(path, index, hurries=True, tolerant=False)
        if index.counted is not None and (index.counted.failed or not index.counted.sound.all()):
            self._know_damage()

    def __enter__(self) -> "PyavReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def stand_ins(self) -> int:
        """Return how many frames so far could not be decoded."""
        return len(self._repeated)

    def frames(self, times_s: Times) -> Frames:
        """Return the frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted = frame_indices(times_s, self.info.times_s)
        if self._lost is None:
            try:
                return self._filled(wanted)
            except (av.FFmpegError, AstrayError):
                self._know_damage()
        try:
            return self._filled(self._allowed(wanted))
        except (av.FFmpegError, AstrayError):
            raise self._refusal() from None

    def fault(self) -> InputError | None:
        """Return the error if any frame cannot be decoded; reads the whole file."""
        return damage(self.path, self.index)

    def close(self) -> None:
        """Close the file."""
        self._decoder.close()

    def _know_damage(self) -> None:
        """Find which frames are lost; from here on, decode from the start of the file."""
        self._lost = lost_frames(self.path, self.index)
        self._decoder.close()
        self._decoder = Decoder(self.path, self.index, hurries=False, tolerant=True)

    def _allowed(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the frames to show: themselves, or the frame before where allowed."""
        lost = self._lost
        if lost is None or not lost[wanted].any():
            return wanted
        if not self.repeats or lost.all():
            raise self._refusal()
        self._repeated.update(wanted[lost[wanted]].tolist())
        return stand_ins(lost)[wanted]

    def _filled(self, wanted: NDArray[np.int64]) -> Frames:
        """Return pictures of the frames of these numbers."""
        numbers, back = np.unique(wanted, return_inverse=True)
        found = np.empty((len(numbers), self.info.height, self.info.width, 3), np.uint8)
        self._decoder.expect(numbers)
        for place, number in enumerate(numbers.tolist()):
            kept = self._kept.get(number)
            found[place] = self._upright(self._decoder.frame(number)) if kept is None else kept
        if not self._decoder.hurries:
            self._kept = dict(zip(numbers.tolist(), found, strict=True))
        return found if len(back) == len(numbers) else found[back]

    def _refusal(self) -> InputError:
        reason = "its frames are not those that its packets promise"
        return damage(self.path, self.index) or unreadable(self.path, reason)


def stand_ins(lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the frame shown for each [N]: itself, the last good one before, or the first."""
    numbers = np.where(lost, -1, np.arange(len(lost)))
    shown = np.maximum.accumulate(numbers)
    return np.where(shown < 0, int(np.argmin(lost)), shown).astype(np.int64)


class Reader(Protocol):
    """One open video; a reader is also a context manager."""

    info: VideoInfo
    index: FrameIndex

    @property
    def stand_ins(self) -> int:
        """Return how many frames so far were replaced by the one before."""
        ...

    def fault(self) -> InputError | None:
        """Return why some frame of the file would be refused; decodes all of it."""
        ...

    def frames(self, times_s: Times) -> Frames:
        """Return the frames displayed at those times, uint8 [T, H, W, 3]."""
        ...

    def __enter__(self) -> "Reader": ...

    def __exit__(self, *error: object) -> None: ...


def open_video(
    path: Path, reader: ReaderName = "auto", max_gap_s: float = MAX_GAP_S, repeats: bool = False
) -> Reader:
    """Return a reader of the video: PyAV, or decord if asked for and right for this file.

    `max_gap_s`: stamps further apart jump. `repeats`: the frame before replaces a lost one.

    decord takes 2.5 times the CPU time of PyAV (docs/speed.md): it decodes frames that nobody asked
    for. So `auto` is PyAV.
    """
    index = frame_index(path, max_gap_s)
    if reader == "decord" and decord_fault(path, index) is None:
        return DecordReader(path, index)
    return PyavReader(path, index, repeats)
