"""Small files as cameras, editors and archives make them: container x codec x property.

Every frame shows its own number in black and white columns, the complement below, so that a frame
can be asked for and recognised, and a picture that is turned, mixed or patched over reads as none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

FPS, COUNT, SIDE, BITS = 25, 72, 96, 8
GROUP, TRIM = 12, 17  # frames between key frames; frames that an edit list leaves out
HIT, HIDDEN = 24, 20  # bytes of a damaged frame; a frame that is there and not displayed
NOT_HIDDEN = [number for number in range(COUNT) if number != HIDDEN]
VOP, NOT_CODED = b"\x00\x00\x01\xb6", b"\x00\x00\x01\xb6\x50\x4f"  # MPEG-4 pictures
DIVX = b"\x00\x00\x01\xb2DivX503b1393p"  # the p says that B-frames are packed
FRAGMENTS = "frag_keyframe+empty_moov"
VARIABLE = np.cumsum([0, *([1, 1, 3, 1, 7, 2] * COUNT)])[:COUNT].tolist()
os.environ.setdefault("SVT_LOG", "0")  # the AV1 encoder writes to stderr otherwise


@dataclass(frozen=True)
class Film:
    """One file of the corpus: frames 0 .. COUNT - 1 at `stamps` (in 1/25 s), of them `shown`.

    `turned`: quarter turns that the picture is stored with and the container takes back.
    """

    name: str
    codec: str
    options: dict[str, str] = field(default_factory=dict)
    pixels: str = "yuv420p"
    size: tuple[int, int] = (SIDE, SIDE)  # height, width
    stamps: tuple[int, ...] = tuple(range(COUNT))
    b_frames: int = 0
    muxer: dict[str, str] = field(default_factory=dict)
    change: Callable[[Path], None] | None = None  # made to the written file
    shown: Sequence[int] = range(COUNT)
    turned: int = 0
    damaged: bool = False

    @property
    def times_s(self) -> np.ndarray:
        """When each frame is displayed, from the first one displayed."""
        stamps = np.array([self.stamps[number] for number in self.shown])
        return (stamps - stamps[0]) / FPS


def drawn(number: int, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    """A picture [H, W, 3] of a number below 256."""
    bits = np.array([number >> place & 1 for place in range(BITS)])
    columns = bits[np.arange(width) * BITS // width]
    top = np.repeat(columns[None], height // 2, axis=0)
    both = np.concatenate([top, 1 - np.repeat(columns[None], height - height // 2, axis=0)])
    return np.repeat((both * 200 + 25).astype(np.uint8)[..., None], 3, axis=2)


def read_number(picture: np.ndarray) -> int:
    """The number that a picture shows; -1 where it shows none."""
    height, width = picture.shape[:2]
    columns = ((np.arange(BITS) + 0.5) * width / BITS).astype(int)
    grey = picture.mean(axis=2)

    def line(middle: int) -> np.ndarray:
        patch = grey[middle - 4 : middle + 5]
        return np.array([patch[:, column - 2 : column + 3].mean() for column in columns])

    top, bottom = line(height // 4), line(3 * height // 4)
    if np.abs(top - bottom).min() < 80:
        return -1
    return int(((top > bottom) << np.arange(BITS)).sum())


def write_film(film: Film, folder: Path) -> Path:
    """Encodes, muxes and changes the film; returns its path."""
    path = folder / film.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=film.muxer) as out:
        stream: Any = out.add_stream(film.codec, rate=FPS)
        stream.height, stream.width = film.size
        stream.pix_fmt = film.pixels
        context = stream.codec_context
        context.gop_size, context.max_b_frames, context.thread_count = GROUP, film.b_frames, 1
        context.options = film.options
        for number, stamp in enumerate(film.stamps):
            picture = np.rot90(drawn(number, *film.size), k=film.turned)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, FPS)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    if film.change is not None:
        film.change(path)
    return path


def _damaged(path: Path) -> None:
    """Overwrites the first third of one large frame between key frames; all sizes stay right.

    Entropy coders of HEVC and VP9 make a picture of any noise: there the header must be hit.
    """
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        packet = max((p for p in packets[24:48] if not p.is_keyframe), key=lambda p: p.size)
        coded, codec = bytes(packet), container.streams.video[0].codec_context.name
    start = {"vp9": 0, "hevc": 4}.get(codec, len(coded) // 3)
    content = bytearray(path.read_bytes())
    while (place := content.find(coded[start : start + HIT])) < 0:
        start += 1  # transport streams cut frames up
    noise = np.random.default_rng(1).integers(0, 256, HIT, dtype=np.uint8)
    content[place : place + HIT] = noise.tobytes()
    path.write_bytes(content)


def turn(path: Path, degrees: int = 90) -> None:
    """Writes a turn into the display matrix of the track header."""
    a, b, c, d = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[degrees]
    content = path.read_bytes()
    place = content.index(b"tkhd") + 44
    matrix = struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    path.write_bytes(content[:place] + matrix + content[place + 36 :])


def _remuxed(path: Path, change: Callable[[list[Any]], None], options: dict[str, str]) -> None:
    """The same packets, changed, in a new file of the same kind."""
    whole = path.with_name(f"whole-{path.name}")
    path.rename(whole)
    with av.open(str(whole)) as source, av.open(str(path), "w", options=options) as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        change(packets)
        for packet in packets:
            packet.stream = stream
            out.mux(packet)
    whole.unlink()


def _edited(path: Path) -> None:
    """An edit list that begins with frame `TRIM`: those before it are there, but not shown."""

    def earlier(packets: list[Any]) -> None:
        shift = round(TRIM / FPS / packets[0].time_base)
        for packet in packets:
            packet.pts, packet.dts = packet.pts - shift, packet.dts - shift

    _remuxed(path, earlier, {"avoid_negative_ts": "disabled", "use_editlist": "1"})


def _hidden(path: Path) -> None:
    """One VP8 frame loses the bit that says it is displayed: others only refer to it."""

    def hide(packets: list[Any]) -> None:
        known = packets[HIDDEN]
        content = bytearray(bytes(known))
        content[0] &= ~0x10
        packets[HIDDEN] = packet = av.Packet(bytes(content))
        packet.pts, packet.dts, packet.time_base = known.pts, known.dts, known.time_base

    _remuxed(path, hide, {})


def _packed(path: Path) -> None:
    """Puts every B-frame into the packet of the frame that it follows in the file, as DivX does.

    An empty picture takes its place, so that the count of packets is that of frames.
    """
    whole = path.with_name(f"whole-{path.name}")
    path.rename(whole)
    with av.open(str(whole)) as source, av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        contents = [bytes(packet) for packet in source.demux(video=0) if packet.size]
        kinds = [_mpeg4_kind(content) for content in contents]
        for number, kind in enumerate(kinds):
            if kind == "B":
                content = NOT_CODED
            elif number + 1 < len(kinds) and kinds[number + 1] == "B":
                content = contents[number] + contents[number + 1]
            else:
                content = contents[number]
            packet = av.Packet(content.replace(VOP, DIVX + VOP, 1) if kind == "I" else content)
            packet.pts = packet.dts = number
            packet.time_base, packet.stream = Fraction(1, FPS), stream
            packet.is_keyframe = kind == "I"
            out.mux(packet)
    whole.unlink()


def _mpeg4_kind(content: bytes) -> str:
    return "IPBS"[content[content.index(VOP) + 4] >> 6]


X264 = {"preset": "veryfast"}
OPEN264 = {"x264-params": "open_gop=1:bframes=3:keyint=12:scenecut=0"}
X265 = {"x265-params": "log-level=none:pools=none:frame-threads=1:open-gop=0:keyint=12"}
OPEN265 = {"x265-params": "log-level=none:pools=none:frame-threads=1:open-gop=1:keyint=12"}
VPX = {"deadline": "realtime", "cpu-used": "8"}
AV1 = {"preset": "10", "svtav1-params": "lp=1:scm=0"}  # its screen mode spoils frame 63
LATE = tuple(range(37, 37 + COUNT))
UNEVEN = tuple(VARIABLE)
H264, HEVC = ("libx264", X264), ("libx265", X265)
SHOWN = range(TRIM, COUNT)
KINDS = [  # film, named without the container; the containers
    (Film("plain", *H264), "mp4 mov mkv ts flv"),
    (Film("b-frames", *H264, b_frames=3), "mp4 mov mkv ts flv avi 3gp m4v"),
    (Film("open", "libx264", OPEN264, b_frames=3), "mp4 mkv ts"),
    (Film("hevc", *HEVC, b_frames=3), "mp4 mkv ts"),
    (Film("hevc-open", "libx265", OPEN265, b_frames=3), "mp4 mkv ts"),
    (Film("mpeg4", "mpeg4"), "avi mp4 mkv mov"),
    (Film("mpeg4-b", "mpeg4", b_frames=2), "avi mp4 mkv"),
    (Film("mpeg4-packed", "mpeg4", b_frames=1, change=_packed), "avi"),
    (Film("mpeg2-b", "mpeg2video", b_frames=2), "mpg ts mp4 mkv"),
    (Film("mpeg2", "mpeg2video"), "mpg"),
    (Film("mpeg1-b", "mpeg1video", b_frames=2), "mpg"),
    (Film("vp9", "libvpx-vp9", VPX), "webm mkv mp4"),
    (Film("vp8", "libvpx", VPX), "webm"),
    (Film("vp8-hidden", "libvpx", VPX, change=_hidden, shown=NOT_HIDDEN), "webm"),
    (Film("av1", "libsvtav1", AV1), "mp4 webm mkv"),
    (Film("mjpeg", "mjpeg", pixels="yuvj420p"), "avi mov mkv"),
    (Film("prores", "prores_ks", pixels="yuv422p10le"), "mov"),
    (Film("loop", "gif", pixels="rgb8"), "gif"),
    (Film("wmv", "wmv2"), "wmv"),
    (Film("sorenson", "flv"), "flv"),
    (Film("lossless", "ffv1"), "mkv"),
    (Film("late", *H264, b_frames=2, stamps=LATE), "mp4 mkv ts flv"),
    (Film("uneven", *H264, b_frames=2, stamps=UNEVEN), "mp4 mkv ts flv mov"),
    (Film("uneven", "libvpx-vp9", VPX, stamps=UNEVEN), "webm"),
    (Film("edited", *H264, change=_edited, shown=SHOWN), "mp4"),
    (Film("edited-b", *H264, b_frames=3, change=_edited, shown=SHOWN), "mov"),
    (Film("turned", *H264, b_frames=2, change=turn, turned=1), "mp4"),
    (Film("turned", "mjpeg", pixels="yuvj420p", change=turn, turned=1), "mov"),
    (Film("odd", *H264, "yuv444p", (85, 97)), "mp4"),
    (Film("odd", "libvpx-vp9", VPX, size=(85, 97)), "webm"),
    (Film("odd", "mjpeg", pixels="yuvj444p", size=(85, 97)), "avi"),
    (Film("small", *H264, size=(48, 72)), "mp4"),
    (Film("deep", *H264, "yuv420p10le", b_frames=2), "mp4"),
    (Film("deep", *HEVC, "yuv420p10le"), "mkv"),
    (Film("deep", "libsvtav1", AV1, "yuv420p10le"), "webm"),
    (Film("fragments", *H264, b_frames=2, muxer={"movflags": FRAGMENTS}), "mp4"),
    (Film("damaged", *H264, b_frames=2, change=_damaged, damaged=True), "mp4 mkv ts"),
    (Film("damaged", *HEVC, b_frames=2, change=_damaged, damaged=True), "mov"),
    (Film("damaged", "mpeg4", b_frames=2, change=_damaged, damaged=True), "avi"),
    (Film("damaged", "mpeg2video", b_frames=2, change=_damaged, damaged=True), "mpg"),
    (Film("damaged", "libvpx-vp9", VPX, b_frames=2, change=_damaged, damaged=True), "webm"),
]


def corpus() -> list[Film]:
    """Every file; those that differ in the container alone stand together."""
    return [
        replace(film, name=f"{film.name}.{end}") for film, ends in KINDS for end in ends.split()
    ]
