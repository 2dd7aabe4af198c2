"""Frames of a video by time, and never another frame than the one asked for.

Times count from the first displayed frame and frames stand upright, whatever the container says.
PyAV reads everything and is the faster one; decord reads what it is known to read right.
"""

from pathlib import Path
from typing import Protocol

from pjepa.core.choices import ReaderName
from pjepa.ui.errors import InputError
from pjepa.video.decord_reader import DecordReader, decord_fault
from pjepa.video.index import MAX_GAP_S, FrameIndex, Times, VideoInfo, frame_index
from pjepa.video.pyav_reader import PyavReader
from pjepa.video.upright import Frames


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

    decord takes 2.5 times the CPU time of PyAV (`python -m benchmarks.extract`): it decodes frames
    that nobody asked for. So `auto` is PyAV.
    """
    index = frame_index(path, max_gap_s)
    if reader == "decord" and decord_fault(path, index) is None:
        return DecordReader(path, index)
    return PyavReader(path, index, repeats)
