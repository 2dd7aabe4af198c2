"""The frames of a video file, when each is shown, and whether stamps tell them apart.

Packets are enough where the container gives every frame a presentation stamp of its own. Where it
does not (AVI knows no presentation stamps, recordings laid end to end repeat them), the file is
decoded once and its frames are counted. Readers are held to the index, so no frame is lost or
taken for another in silence. Every refusal is one line: the file, what is wrong, what to do.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from numpy.typing import NDArray

from pjepa.core.tables import MAX_GAP_S
from pjepa.ui.console import InputError
from pjepa.video.timeline import Jump, jump_limit, stitched

# The packets of a video in the order they are decoded, read without decoding them.

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
    vp8, rows = stream.codec_context.name in ("vp8", "libvpx"), []
    for packet in container.demux(stream):
        if packet.size:
            hidden = packet.is_discard or (vp8 and not bytes(packet)[0] & SHOW_FRAME)
            stamps = known_stamp(packet.pts), known_stamp(packet.dts)
            rows.append((*stamps, packet.size, packet.is_keyframe, not hidden))
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Packets(*table[:, :3].T, *table[:, 3:].T.astype(bool))


def known_stamp(stamp: int | None) -> int:
    return NO_STAMP if stamp is None else stamp


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


Times = NDArray[np.float64]

CUT_OFF_S = 0.5  # a video this much shorter than it should be was cut off
PROBED = 16  # frames decoded to see whether the decoder agrees with the packets
AGAIN = "fetch or export it again"
MP4, MATROSKA = "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"  # as FFmpeg calls them
WITH_HEADER = (MP4, MATROSKA, "avi")  # that tells the length; of others it is a guess
DECODE_ORDER = {"avi", "h264", "hevc", "m4v", "mpegvideo", "h263", "obu"}  # know no display order


@dataclass(frozen=True)
class VideoInfo:
    """What the file says about itself; `times_s` is the presentation time of every frame.

    At a jump the time stamps restart: the recording was interrupted there.
    """

    fps: float
    duration_s: float
    width: int
    height: int
    times_s: Times
    jumps: tuple[Jump, ...] = ()

    @property
    def jumps_s(self) -> tuple[float, ...]:
        return tuple(jump.time_s for jump in self.jumps)


@dataclass(frozen=True)
class Counted:
    """All frames as the decoder gives them, from the first to the last.

    `stamps` [N, 2] are their pts and dts; those not `sound` were decoded, but not as encoded.
    """

    stamps: NDArray[np.int64]
    sound: NDArray[np.bool_]
    before: int  # frames left out before the first that is sound
    failed: int  # packets that gave an error instead of a frame


@dataclass(frozen=True)
class FrameIndex:
    """The frames of a file in display order; `ticks` are their stamps in the stream's time base.

    Where `counted` is there, stamps do not tell frames apart: the n-th is the n-th decoded.
    """

    ticks: NDArray[np.int64]
    info: VideoInfo
    packets: Packets
    container: str  # as FFmpeg calls it, whatever the file is called
    promised: int  # frames by the file's header; 0: it does not say
    counted: Counted | None = None


def frame_index(path: Path, max_gap_s: float = MAX_GAP_S) -> FrameIndex:
    """Return the index of a video; raise if it is no video or shorter than its header says."""
    if not path.is_file():
        raise InputError(f"{path}: no such video; check the data root")
    state = path.stat()
    if state.st_size == 0:
        raise InputError(f"{path}: the video file is empty; {AGAIN}")
    return _read_index(path, max_gap_s, (state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=2)  # tools look at a video before they read it
def _read_index(path: Path, max_gap_s: float, state: tuple[int, int]) -> FrameIndex:
    try:
        with av.open(str(path)) as container:
            stream = video_stream(container, path)
            packets = read_packets(container, stream)
            check_complete(path, packets, stream)
        with av.open(str(path)) as container:
            return _index(container, packets, path, max_gap_s)
    except av.EOFError:
        raise InputError(f"{path}: holds no frames; {AGAIN}") from None
    except (av.FFmpegError, ValueError) as error:
        raise unreadable(path, error) from None


def check_complete(path: Path, packets: Packets, stream: av.video.stream.VideoStream) -> None:
    """Refuse a file that holds fewer frames than its header says, or none.

    Fewer are right where an edit list leaves some out: then they last as long as the header says.
    """
    if not packets.shown.any():
        raise InputError(f"{path}: holds no frames; {AGAIN}")
    if len(packets) < stream.frames:
        stamps = packets.pts[packets.shown]
        promised = stream.duration or 0
        missing = promised - int(stamps.max() - stamps.min())
        if not promised or missing > 2 * promised / stream.frames:
            found = f"{len(packets)} of {stream.frames}"
            raise InputError(f"{path}: is cut off, {found} frames are there; {AGAIN}")


def _index(
    container: av.container.InputContainer, packets: Packets, path: Path, max_gap_s: float
) -> FrameIndex:
    """Return the index by stamps where they can be trusted, by counting elsewhere."""
    stream = video_stream(container, path)
    base = float(stream.time_base or 1)
    nominal = float(stream.average_rate or stream.guessed_rate or 1)
    first = list(islice(container.decode(stream), PROBED))
    if not first:
        raise InputError(f"{path}: holds no frames; {AGAIN}")
    kind = container.format.name
    limit = jump_limit(packets.dts[packets.dts != NO_STAMP], base, max_gap_s)
    ticks, counted = np.sort(packets.pts[packets.shown]), None
    jumps: tuple[Jump, ...] = ()
    if _is_doubtful(packets, first, kind, stream.codec_context.has_b_frames, limit):
        counted = counted_frames(path)
        raw = display_stamps(counted, kind, 1 / (nominal * base))
        ticks, jumps = stitched(raw, limit, base)
    times = (ticks - ticks[0]) * base
    span = float(times[-1])
    fps = (len(times) - 1) / span if span > 0 else nominal
    check_tagged(path, stream, span + 1 / fps, float(ticks[0] * base))
    height, width = displayed_size(first[0])
    info = VideoInfo(fps, span + 1 / fps, width, height, times, jumps)
    return FrameIndex(ticks, info, packets, kind, stream.frames, counted)


def _is_doubtful(
    packets: Packets, first: list[av.VideoFrame], kind: str, reorders: bool, limit: int
) -> bool:
    """Return whether the stamps of packets may not be those of frames, or not tell them apart."""
    stamps = np.sort(packets.pts[packets.shown])
    if stamps[0] == NO_STAMP or (np.diff(stamps) == 0).any():
        return True
    if kind in DECODE_ORDER and (reorders or (packets.pts != packets.dts).any()):
        return True
    known = packets.dts[packets.dts != NO_STAMP]
    if (np.diff(known) < 0).any() or (np.diff(stamps) > limit).any():
        return True
    if any(frame.is_corrupt for frame in first):  # what comes before the first key frame
        return True
    return [frame.pts for frame in first] != stamps[: len(first)].tolist()


def counted_frames(path: Path) -> Counted:
    """Decode the whole file; after an error nothing is sound until the next key frame.

    Nor before the first one, which need not be displayed: an edit list may begin after it.
    """
    stamps: list[list[int]] = []
    sound: list[bool] = []
    failed, trusted, ahead = 0, False, 0  # frames in a row that refer to the next one
    with av.open(str(path)) as container:
        for packet in container.demux(video_stream(container, path)):
            trusted = trusted or (bool(packet.is_keyframe) and not stamps and not failed)
            try:
                frames = packet.decode()
            except av.FFmpegError:
                failed, trusted = failed + 1, False
                continue
            for frame in frames:
                trusted = not frame.is_corrupt and (trusted or bool(frame.key_frame))
                if frame.is_corrupt and ahead:
                    sound[-ahead:] = [False] * ahead
                ahead = ahead + 1 if frame.pict_type == PictureType.B else 0
                stamps.append([known_stamp(frame.pts), known_stamp(frame.dts)])
                sound.append(trusted)
    begin = sound.index(True) if True in sound else len(sound)
    if begin == len(sound):
        raise InputError(f"{path}: holds no frames; {AGAIN}")
    # A recording that starts between two key frames begins with the first that can be decoded.
    return Counted(np.array(stamps[begin:]), np.array(sound[begin:]), begin, failed)


def display_stamps(counted: Counted, kind: str, step: float) -> NDArray[np.int64]:
    """Return a stamp for every frame in display order; AVI counts packets."""
    by_picture, by_packet = (_filled(column, step) for column in counted.stamps.T)
    rising = bool((np.diff(by_picture) > 0).all())
    counts = kind in DECODE_ORDER or (not rising and bool((np.diff(by_packet) > 0).all()))
    return by_packet if counts else by_picture


def _filled(stamps: NDArray[np.int64], step: float) -> NDArray[np.int64]:
    """Return the stamps; a frame without one comes a `step` after the frame before."""
    filled = stamps.copy()
    for number in np.flatnonzero(stamps == NO_STAMP).tolist():
        filled[number] = filled[number - 1] + round(step) if number else 0
    return filled


def check_tagged(
    path: Path, stream: av.video.stream.VideoStream, duration_s: float, start_s: float
) -> None:
    """Refuse a Matroska file that is shorter than its tag says, 00:01:02.500 for instance."""
    try:
        hours, minutes, seconds = stream.metadata.get("DURATION", "").split(":")
        promised = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        return
    if duration_s < promised - start_s - CUT_OFF_S:
        raise InputError(
            f"{path}: is cut off, {duration_s:.1f} of {promised:.1f} s are there; {AGAIN}"
        )


def expected_seconds(path: Path) -> float:
    """Return the length for plans: by a header that can be trusted, else counted."""
    with suppress(av.FFmpegError, ValueError, OSError), av.open(str(path)) as container:
        seconds = (container.duration or 0) / av.time_base
        if container.format.name in WITH_HEADER and seconds > 0:
            return seconds
    return frame_index(path).info.duration_s


def displayed_size(frame: av.VideoFrame) -> tuple[int, int]:
    """Return (height, width) of the upright picture."""
    size = frame.height, frame.width
    return size if frame.rotation % 180 == 0 else size[::-1]


def unreadable(path: Path, error: Exception | str) -> InputError:
    """Return the error of a file that no decoder reads, with the decoder's reason."""
    reason = error.strerror if isinstance(error, av.FFmpegError) else str(error)
    reason = (str(reason or "").strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"{path}: cannot be decoded ({reason}); {AGAIN}, or leave the take out")
