"""Decoded frames as pictures, the way they are displayed."""

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from pjepa.video.index import displayed_size

Frames = NDArray[np.uint8]  # [T, H, W, 3], RGB


class Upright:
    """Pictures as displayed, uint8 [H, W, 3], of the frames of one video, all of one size.

    One converter serves all frames: PyAV would set up another for each, with threads of its own.
    """

    def __init__(self, height: int | None = None, width: int | None = None) -> None:
        """Use this size, or that of the first frame."""
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
