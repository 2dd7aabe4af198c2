"""The packets of a video in the order they are decoded, read without decoding them."""

from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.ui.errors import InputError

NO_STAMP = -(1 << 62)  # a packet without this stamp
SHOW_FRAME = 0x10  # of a VP8 packet's first byte; a frame without it is only referred to


@dataclass(frozen=True)
class Packets:
    """Stamps in the stream's time base, [N]; `shown`: not cut away by an edit list, not hidden."""

    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    size: NDArray[np.int64]
    key: NDArray[np.bool_]
    shown: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.pts)

    @property
    def leading(self) -> bool:
        """Return whether frames are shown before the key frame they follow (open groups)."""
        lowest = np.minimum.accumulate(self.pts[::-1])[::-1]  # of this packet and all later ones
        return bool((self.key & (lowest < self.pts)).any())


def read_packets(
    container: av.container.InputContainer, stream: av.video.stream.VideoStream
) -> Packets:
    """Return all packets of the stream."""
    rows = [
        (
            NO_STAMP if packet.pts is None else packet.pts,
            NO_STAMP if packet.dts is None else packet.dts,
            packet.size,
            packet.is_keyframe,
            not packet.is_discard and not _is_hidden(packet, stream.codec_context.name),
        )
        for packet in container.demux(stream)
        if packet.size
    ]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Packets(*table[:, :3].T, *table[:, 3:].T.astype(bool))


def _is_hidden(packet: av.Packet, codec: str) -> bool:
    return codec in ("vp8", "libvpx") and not bytes(packet)[0] & SHOW_FRAME


def video_stream(container: av.container.InputContainer, path: Path) -> av.video.stream.VideoStream:
    """Return the first stream of moving pictures: no cover art, no still image."""
    if container.format.name.endswith("_pipe") or container.format.name == "image2":
        kind = container.format.name.removesuffix("_pipe")
        raise InputError(f"{path}: is a picture ({kind}), not a video; correct the table of takes")
    for stream in container.streams.video:
        if not stream.disposition & av.stream.Disposition.attached_pic:
            stream.codec_context.thread_count = 1
            return stream
    kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
    raise InputError(f"{path}: has no video stream, only {kinds}; correct the table of takes")
