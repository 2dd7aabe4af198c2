"""Frames through decord, for files that it reads right.

decord seeks by a table of its own, says nothing about damage and does not tell which frame it
returns. So it is used only where all of that can be known before.
"""

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pjepa.core.time import frame_indices
from pjepa.video.decoder import damage
from pjepa.video.index import MATROSKA, MP4, FrameIndex, Times, unreadable

NARROW = 80  # pixels; decord miscounts the channels of frames 16, 24, 48 or 72 wide
REOPEN_FRAMES = 4096  # decord never gives back what decoding took (decord#208): start afresh


def decord_fault(path: Path, index: FrameIndex) -> str | None:
    """Return why decord would misread this file; None if every frame will be right.

    Decodes the file once with PyAV: decord hides damage silently.
    """
    info, packets = index.info, index.packets
    if importlib.util.find_spec("decord") is None:
        return "decord is not installed"
    if index.container not in (MP4, MATROSKA) or index.counted is not None:
        return f"decord seeks wrongly in {index.container}"
    if index.container == MP4 and not index.promised:
        return "decord numbers the frames of a fragmented file wrongly"
    if min(info.width, info.height) < NARROW:
        return "decord misreads narrow pictures"
    if not packets.shown.all():
        return "decord counts frames that are not displayed"
    if not packets.key[0] or packets.leading:
        return "decord loses frames shown before the key frame that they follow"
    if (fault := damage(path, index)) is not None:
        return str(fault)
    return _opening_fault(path, index)


def _opening_fault(path: Path, index: FrameIndex) -> str | None:
    """Return what is wrong if decord does not open the file or its table disagrees."""
    import decord

    try:
        video = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
        if len(video) != len(index.ticks):
            return f"decord finds {len(video)} frames of {len(index.ticks)}"
        starts = video.get_frame_timestamp(range(len(video)))[:, 0]
    except Exception:  # decord raises its own class for everything
        return "decord cannot open it"
    times = starts - starts[0]
    step = float(np.diff(index.info.times_s).min()) if len(times) > 1 else 1.0
    if np.abs(times - index.info.times_s).max() > max(step / 4, 1e-5 * index.info.duration_s):
        return "decord shows frames at other times"
    return None


class DecordReader:
    """Frames through decord; times from the container, because decord's are float32."""

    stand_ins = 0  # files with damage are not read by decord

    def __init__(self, path: Path, index: FrameIndex) -> None:
        self.path, self.index, self.info = path, index, index.info
        self._open()

    def _open(self) -> None:
        import decord

        self._video = decord.VideoReader(str(self.path), ctx=decord.cpu(0), num_threads=1)
        self._opened_at = -1  # index of the first frame decoded since

    def __enter__(self) -> "DecordReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def frames(self, times_s: Times) -> NDArray[np.uint8]:
        """Return the frames displayed at those times, uint8 [T, H, W, 3]."""
        wanted, back = np.unique(frame_indices(times_s, self.info.times_s), return_inverse=True)
        if self._opened_at >= 0 and abs(int(wanted[-1]) - self._opened_at) > REOPEN_FRAMES:
            del self._video  # first, or both would be held at once
            self._open()
        if self._opened_at < 0:
            self._opened_at = int(wanted[0])
        try:
            batch: NDArray[np.uint8] = self._video.get_batch(wanted.tolist()).asnumpy()
        except Exception as error:  # decord raises its own class for every decoding failure
            raise unreadable(self.path, f"decord: {error}") from None
        return batch if len(back) == len(wanted) else batch[back]

    def fault(self) -> None:
        """Return None: the file was decoded once before decord got it."""

    def close(self) -> None:
        """Release decord's memory."""
        del self._video
