"""Frames of a file that cannot be decoded, and the error that reports them."""

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.ui.errors import InputError
from pjepa.video.index import AGAIN, FrameIndex, counted_frames, unreadable


def lost_frames(path: Path, index: FrameIndex) -> NDArray[np.bool_]:
    """Return which frames [N] cannot be decoded as they were encoded; reads the whole file.

    What follows a damaged frame refers to it, until the next key frame.
    """
    if index.counted is not None:
        return ~index.counted.sound
    found = counted_frames(path)
    sound: NDArray[np.bool_] = np.isin(index.ticks, found.stamps[found.sound, 0])
    return ~sound


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
