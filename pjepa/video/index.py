"""What a video file holds, found without decoding it, and which of it cannot be decoded.

Every refusal is one line: the file, what is wrong with it, what to do. The index is what the
container promises; readers are held to it, so no frame is lost in silence.
"""

from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from pjepa.errors import InputError

Times = NDArray[np.float64]

CUT_OFF_S = 0.5  # a video this much shorter than it should be was cut off
AGAIN = "fetch or export it again"


@dataclass(frozen=True)
class VideoInfo:
    """What the file says about itself; `times_s` is the presentation time of every frame."""

    fps: float
    duration_s: float
    width: int
    height: int
    times_s: Times


@dataclass(frozen=True)
class FrameIndex:
    """Presentation stamps of all frames, in the stream's time base, and what they amount to."""

    ticks: NDArray[np.int64]
    info: VideoInfo


def frame_index(path: Path) -> FrameIndex:
    """The index of a video; what is no video, or less than its header promises, is refused."""
    if not path.is_file():
        raise InputError(f"{path}: no such video; check the data root")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the video file is empty; {AGAIN}")
    try:
        with av.open(str(path)) as container:
            stream = video_stream(container, path)
            ticks = _presentation_ticks(container, stream, path)
        with av.open(str(path)) as container:
            info = _video_info(container, ticks, path)
    except av.EOFError:
        raise InputError(f"{path}: holds no frames; {AGAIN}") from None
    except (av.FFmpegError, ValueError, StopIteration) as error:
        raise unreadable(path, error) from None
    return FrameIndex(ticks, info)


def header_seconds(path: Path) -> float:
    """Length by the file's header alone, for plans; 0 where it says nothing."""
    try:
        with av.open(str(path)) as container:
            return max(0.0, (container.duration or 0) / av.time_base)
    except (av.FFmpegError, ValueError, OSError):
        return 0.0  # what is wrong with it is said when it is read


def unreadable(path: Path, error: Exception | str) -> InputError:
    """The refusal of a file that no decoder reads, with the decoder's reason."""
    reason = error.strerror if isinstance(error, av.FFmpegError) else str(error)
    reason = (str(reason or "").strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"{path}: cannot be decoded ({reason}); {AGAIN}, or leave the take out")


def video_stream(container: av.container.InputContainer, path: Path) -> av.video.stream.VideoStream:
    """The first stream of moving pictures: no cover art, no still image."""
    if container.format.name.endswith("_pipe") or container.format.name == "image2":
        kind = container.format.name.removesuffix("_pipe")
        raise InputError(f"{path}: is a picture ({kind}), not a video; correct the table of takes")
    for stream in container.streams.video:
        if not stream.disposition & av.stream.Disposition.attached_pic:
            return stream
    kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
    raise InputError(f"{path}: has no video stream, only {kinds}; correct the table of takes")


def _presentation_ticks(
    container: av.container.InputContainer, stream: av.video.stream.VideoStream, path: Path
) -> NDArray[np.int64]:
    """Sorted presentation stamps of all displayed frames, in the stream's time base."""
    packets, shown = 0, set()
    for packet in container.demux(stream):
        packets += packet.size > 0
        if packet.pts is not None and not packet.is_discard:
            shown.add(packet.pts)
    if packets < stream.frames:
        raise InputError(
            f"{path}: is cut off, {packets} of {stream.frames} frames are there; {AGAIN}"
        )
    if not shown:
        raise InputError(f"{path}: holds no frames; {AGAIN}")
    return np.array(sorted(shown), dtype=np.int64)


def _video_info(
    container: av.container.InputContainer, ticks: NDArray[np.int64], path: Path
) -> VideoInfo:
    """What the stream header and the presentation stamps say; upright width and height."""
    stream = video_stream(container, path)
    first = next(container.decode(stream))
    times = (ticks - ticks[0]) * float(stream.time_base or 1)
    span = float(times[-1])
    nominal = float(stream.average_rate or stream.guessed_rate or 1)
    fps = (len(times) - 1) / span if span > 0 else nominal
    height, width = displayed_size(first)
    promised = _tagged_seconds(stream.metadata.get("DURATION", ""))
    if span + 1 / fps < promised - float(ticks[0] * (stream.time_base or 1)) - CUT_OFF_S:
        raise InputError(
            f"{path}: is cut off, {span + 1 / fps:.1f} of {promised:.1f} s are there; {AGAIN}"
        )
    return VideoInfo(fps, span + 1 / fps, width, height, times)


def displayed_size(frame: av.VideoFrame) -> tuple[int, int]:
    """(height, width) of the upright picture."""
    size = frame.height, frame.width
    return size if frame.rotation % 180 == 0 else size[::-1]


def _tagged_seconds(tag: str) -> float:
    """Seconds of a Matroska tag such as 00:01:02.500; 0 where there is none."""
    try:
        hours, minutes, seconds = tag.split(":")
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        return 0.0


def lost_frames(path: Path, index: FrameIndex) -> NDArray[np.int64]:
    """Numbers of the frames that cannot be decoded; reads the whole file."""
    seen: set[int] = set()
    with av.open(str(path)) as container:
        for packet in container.demux(video_stream(container, path)):
            try:
                seen |= {frame.pts or 0 for frame in packet.decode() if not frame.is_corrupt}
            except av.FFmpegError:  # this packet is lost, the next may not be
                continue
    return np.flatnonzero(~np.isin(index.ticks, sorted(seen)))


def damage(path: Path, index: FrameIndex) -> InputError | None:
    """The refusal of a file with frames that cannot be decoded: how many, and where."""
    try:
        lost = lost_frames(path, index)
    except av.FFmpegError as error:
        return unreadable(path, error)
    if not len(lost):
        return None
    first, last = index.info.times_s[lost[[0, -1]]]
    return InputError(
        f"{path}: {len(lost)} of {len(index.ticks)} frames cannot be decoded, from {first:.1f} to "
        f"{last:.1f} s; {AGAIN}, or leave the take out"
    )


def damaged(path: Path, index: FrameIndex, reader: str) -> InputError:
    """The refusal of a file in which `reader` failed."""
    other = "pyav" if reader == "decord" else "decord"
    blamed = unreadable(path, f"{reader} fails, try patches.reader={other}")
    return damage(path, index) or blamed
