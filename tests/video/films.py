"""Small real videos for tests, good and bad."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

FPS = 16
FAST = {"movflags": "faststart"}


def write_film(
    path: Path,
    seed: int = 0,
    frames: int = 40,
    size: int = 96,
    container: dict[str, str] | None = None,
    changed_from: int | None = None,
) -> Path:
    """Lossless frames of noise blocks; those from `changed_from` on differ from the usual ones."""
    with av.open(str(path), "w", options=container or {}) as film:
        stream = film.add_stream("libx264", rate=FPS)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 8
        stream.codec_context.options = {"qp": "0", "preset": "ultrafast"}
        for number in range(frames):
            changed = changed_from is not None and number >= changed_from
            rng = np.random.default_rng((seed, number, int(changed)))
            blocks = rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
            picture = np.kron(blocks, np.ones((8, 8, 1), np.uint8))
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    return path


def _cut(whole: Path, path: Path, share: float) -> None:
    content = whole.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def _corrupt_middle(good: Path, path: Path) -> None:
    content = bytearray(good.read_bytes())
    middle, length = len(content) // 2, len(content) // 8
    content[middle : middle + length] = bytes(length)
    path.write_bytes(content)


def write_patched(good: Path, path: Path) -> Path:
    """A frame of the good film damaged inside: decoders patch it over and go on."""
    with av.open(str(good)) as container:
        place = [packet.pos for packet in container.demux(video=0) if packet.size][13]
    content = bytearray(good.read_bytes())
    content[place + 200 : place + 264] = bytes(64)  # the packet's length stays right
    path.write_bytes(content)
    return path


def _picture(good: Path, path: Path) -> None:
    picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 90, np.uint8), "rgb24")
    still = path.with_name(f"still-{path.stem}.png")
    with av.open(str(still), "w", format="image2") as out:
        stream = out.add_stream("png")
        stream.width, stream.height, stream.pix_fmt = 64, 64, "rgb24"
        out.mux(stream.encode(picture))
    shutil.move(still, path)


def _sound(good: Path, path: Path) -> None:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=44100)
        for number in range(20):
            sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            sound.sample_rate, sound.pts = 44100, 1024 * number
            out.mux(stream.encode(sound))
        out.mux(stream.encode(None))


def _no_frames(good: Path, path: Path) -> None:
    with av.open(str(path), "w", format="matroska") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        out.start_encoding()


# Every kind of bad file: how it is made of a good one, and what is said of it.
BAD: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "missing": (
        lambda good, path: path.unlink(missing_ok=True),
        r"no such video; check the data root",
    ),
    "empty": (
        lambda good, path: path.touch(),
        r"the video file is empty; fetch or export it again",
    ),
    "text": (
        lambda good, path: path.write_text("this is not a video\n" * 50),
        r"cannot be decoded \(Invalid data.*\); fetch or export it again",
    ),
    "without_index": (  # which stands at the end
        lambda good, path: _cut(good, path, 0.5),
        r"cannot be decoded \(Invalid data.*\); fetch",
    ),
    "truncated": (
        lambda good, path: _cut(write_film(path, container=FAST), path, 0.6),
        r"is cut off, \d+ of 40 frames are there; fetch",
    ),
    "truncated_matroska": (
        lambda good, path: _cut(write_film(path.with_suffix(".mkv"), frames=80), path, 0.6),
        r"is cut off, \d\.\d of 5\.0 s are there; fetch",
    ),
    "corrupt_middle": (_corrupt_middle, r"\d+ of 40 frames cannot be decoded, from \d\.\d to"),
    "picture": (_picture, r"is a picture \(png\), not a video; correct the table"),
    "sound": (_sound, r"has no video stream, only audio; correct the table"),
    "no_frames": (_no_frames, r"holds no frames; fetch"),
}


def write_bad(kind: str, good: Path, path: Path) -> str:
    """Writes a bad file of that kind; returns the pattern of what must be said of it."""
    make, said = BAD[kind]
    make(good, path)
    return said
