"""The n-th frame of a file, decoded with PyAV and compared with the index.

It decodes forward. Where a frame asked for follows a later key frame, it continues there: what lies
between is read but not decoded, or is jumped over. After that the packets must be those that the
index found from the start on, and the first frame must be a key frame. Whatever differs is an
`AstrayError`; from the start of the file, nothing has to be assumed.
"""

from collections import deque
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from numpy.typing import NDArray

from pjepa.video.index import NO_STAMP, FrameIndex, known_stamp, video_stream

SEEK_AHEAD = 256  # packets; reading this far is cheaper than seeking
HELD = 16  # B-frames in a row; no encoder puts more between two frames that they refer to


class AstrayError(Exception):
    """The error when decoded frames are not what the index says, or not as they were encoded."""


class Decoder:
    """Frames by number, with few steps of Python for each: the encoder shares the interpreter.

    `hurries`: begins at key frames and leaves out what nobody asked for and no frame refers to.
    `tolerant`: continues after damage, for callers that know which frames not to ask for.
    """

    def __init__(self, path: Path, index: FrameIndex, hurries: bool, tolerant: bool) -> None:
        self.path, self.index, self.tolerant = path, index, tolerant
        self.hurries = hurries and index.counted is None
        self._entries = _entries(index) if self.hurries else np.zeros(len(index.ticks), np.int64)
        self._asked: set[int] = set()  # stamps of the frames asked for
        self._until = int(index.ticks[0])  # what will be asked for from here on is not known yet
        self._number = -1  # of the last frame taken out
        self._last: av.VideoFrame | None = None
        self._open()

    def expect(self, numbers: NDArray[np.int64]) -> None:
        """Announce the frames that will be asked for, in increasing order, and none between."""
        stamps = self.index.ticks[numbers].tolist()
        self._asked, self._until = set(stamps), stamps[-1]

    def frame(self, number: int) -> av.VideoFrame:
        """Return the frame of that number."""
        if number == self._number and self._last is not None:
            return self._last
        self._enter(number)
        while True:
            while self._ready:
                self._number, self._last = self._ready.popleft()
                if self._number > number:
                    raise AstrayError
                if self._number == number:
                    return self._last
            self._feed()

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _open(self) -> None:
        self._container = av.open(str(self.path))
        self._stream = video_stream(self._container, self.path)
        self._packets = self._container.demux(self._stream)
        self._pending: av.Packet | None = None
        self._start(0)

    def _start(self, at: int) -> None:
        """Start decoding at packet `at`."""
        self._at, self._count, self._number = at, 0, -1  # next packet, frames decoded
        self._last = None
        self._held: list[tuple[int, av.VideoFrame]] = []
        self._ready: deque[tuple[int, av.VideoFrame]] = deque()
        self._key = int(self.index.packets.pts[at]) if at else None  # that has to come first

    def _enter(self, number: int) -> None:
        """Go to where decoding for this frame has to begin."""
        entry = int(self._entries[number])
        if number > self._number and entry <= self._at:
            return
        if entry == 0:  # not every container can seek to its start
            self._container.close()
            self._open()
            return
        if entry < self._at or entry > self._at + SEEK_AHEAD:
            self._seek(entry)
        while self._at < entry:
            self._next_packet()
        self._stream.codec_context.flush_buffers()
        self._start(entry)

    def _seek(self, entry: int) -> None:
        """Seek to this packet or an earlier one; the packet found there tells which."""
        packets = self.index.packets
        stamp = packets.dts[entry] if packets.dts[entry] != NO_STAMP else packets.pts[entry]
        self._container.seek(int(stamp), stream=self._stream)
        self._packets = self._container.demux(self._stream)
        self._pending = next(self._packets)
        pts, dts = known_stamp(self._pending.pts), known_stamp(self._pending.dts)
        same = np.flatnonzero((packets.pts == pts) & (packets.dts == dts))
        if len(same) != 1 or same[0] > entry:
            raise AstrayError
        self._at = int(same[0])

    def _next_packet(self) -> av.Packet:
        """Return the next packet and check it against the index; the last is empty."""
        packet, self._pending = self._pending or next(self._packets, None), None
        if packet is None:
            raise AstrayError
        if packet.size:
            at, packets = self._at, self.index.packets
            stamps = known_stamp(packet.pts), known_stamp(packet.dts), packet.size
            if at >= len(packets) or stamps != (packets.pts[at], packets.dts[at], packets.size[at]):
                raise AstrayError
            self._at += 1
        return packet

    def _feed(self) -> None:
        """Decode the next packet."""
        packet = self._next_packet()
        known = self.hurries and packet.pts is not None and packet.pts < self._until
        idle = known and packet.pts not in self._asked
        self._stream.codec_context.skip_frame = "NONREF" if idle else "DEFAULT"
        try:
            for frame in packet.decode():
                self._take(frame)
        except av.FFmpegError:
            if not self.tolerant:
                raise
        if not packet.size:
            self._release()

    def _take(self, frame: av.VideoFrame) -> None:
        """Keep a decoded frame; those before the key frame may lack what they refer to.

        B-frames wait for the next other frame, which they refer to: whether that one was damaged
        is known when it comes out.
        """
        if self._key is not None:
            if known_stamp(frame.pts) < self._key:
                return
            if frame.pts != self._key or not frame.key_frame:
                raise AstrayError
            self._key = None
        number = self._number_of(frame)
        if number < 0:
            return
        self._held.append((number, frame))
        if frame.pict_type != PictureType.B or len(self._held) > HELD:
            self._release()

    def _release(self) -> None:
        self._ready.extend(self._held)
        self._held.clear()

    def _number_of(self, frame: av.VideoFrame) -> int:
        """Return the frame's number by its stamp, or by counting; -1: not displayed."""
        counted = self.index.counted
        if counted is None:
            number = int(np.searchsorted(self.index.ticks, known_stamp(frame.pts)))
            right = number < len(self.index.ticks) and self.index.ticks[number] == frame.pts
        else:
            number, self._count = self._count - counted.before, self._count + 1
            stamps = known_stamp(frame.pts), known_stamp(frame.dts)
            right = number < 0 or (
                number < len(counted.stamps) and stamps == tuple(counted.stamps[number].tolist())
            )
        if not right or (frame.is_corrupt and number >= 0 and not self.tolerant):
            raise AstrayError
        return number


def _entries(index: FrameIndex) -> NDArray[np.int64]:
    """Return the packet at which decoding for each frame may begin: an earlier key frame."""
    packets = index.packets
    keys = np.flatnonzero(packets.key & packets.shown & (packets.pts != NO_STAMP))
    keys = keys[np.maximum.accumulate(packets.pts[keys]) == packets.pts[keys]]
    place = np.searchsorted(packets.pts[keys], index.ticks, side="right") - 1
    return np.where(place >= 0, keys[place.clip(0)] if len(keys) else 0, 0).astype(np.int64)
