"""Both readers give equal, upright frames at times counted from the first displayed one."""

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from pjepa.core.section import ReaderName
from pjepa.ui.console import InputError
from pjepa.video.reader import open_video
from tests.video.films import BAD, write_bad, write_film, write_patched

READERS: list[ReaderName] = ["decord", "pyav"]
FPS, COUNT, WIDTH, HEIGHT = 25, 50, 96, 80
ROTATIONS = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


def write_video(
    path: Path, start: int = 0, width: int = WIDTH, stamps: list[int] | None = None
) -> Path:
    """A moving square; the grey level of the lower half tells the frame's number."""
    stamps = stamps or list(range(start, start + COUNT))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = width, HEIGHT, "yuv420p"
        stream.codec_context.gop_size = 12
        for number, stamp in enumerate(stamps):
            picture = np.zeros((HEIGHT, width, 3), np.uint8)
            picture[8:24, number : number + 16] = (200, 40, 90)
            picture[32:] = 5 * number
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def numbers(frames: np.ndarray) -> list[int]:
    return [round(float(frame[40:60].mean()) / 5) for frame in frames]


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "plain.mp4")


@pytest.mark.parametrize("reader", READERS)
def test_info(video: Path, reader: ReaderName) -> None:
    with open_video(video, reader) as opened:
        info = opened.info
    assert (info.width, info.height) == (WIDTH, HEIGHT)
    assert info.fps == pytest.approx(FPS)
    assert info.duration_s == pytest.approx(COUNT / FPS)
    np.testing.assert_allclose(info.times_s, np.arange(COUNT) / FPS, atol=1e-9)


@pytest.mark.parametrize("reader", READERS)
def test_frame_displayed_at_a_time(video: Path, reader: ReaderName) -> None:
    times = np.array([0.0, 0.039, 0.04, 1.0, 0.5, 0.5, 1.96, 99.0])
    with open_video(video, reader) as opened:
        assert numbers(opened.frames(times)) == [0, 0, 1, 25, 12, 12, 49, 49]


@pytest.mark.parametrize("reader", READERS)
def test_windows_in_order_and_back_again(video: Path, reader: ReaderName) -> None:
    with open_video(video, reader) as opened:
        for first in (0, 10, 30, 5, 48):
            times = np.arange(first, min(first + 6, COUNT)) / FPS
            found = opened.frames(times)
            assert numbers(found) == list(range(first, first + len(times)))


@pytest.mark.parametrize("name", ["offset.mp4", "offset.mkv"])
@pytest.mark.parametrize("reader", READERS)
def test_start_offset_is_subtracted(tmp_path: Path, name: str, reader: ReaderName) -> None:
    path = write_video(tmp_path / name, start=13)
    with open_video(path, reader) as opened:
        assert opened.info.times_s[0] == 0.0
        assert opened.info.duration_s == pytest.approx(COUNT / FPS, abs=1e-3)
        assert numbers(opened.frames(np.array([0.0, 0.41, 1.5]))) == [0, 10, 37]


@pytest.mark.parametrize("start", [0, 13])
@pytest.mark.parametrize("name", ["same.mp4", "same.mkv"])
def test_readers_give_equal_frames(tmp_path: Path, name: str, start: int) -> None:
    path = write_video(tmp_path / name, start=start)
    times = np.linspace(0, 2, 41)
    with open_video(path, "decord") as left, open_video(path, "pyav") as right:
        np.testing.assert_array_equal(left.frames(times), right.frames(times))
        np.testing.assert_array_equal(left.info.times_s, right.info.times_s)


@pytest.mark.parametrize("degrees", ROTATIONS)
def test_rotated_video_stands_upright(video: Path, tmp_path: Path, degrees: int) -> None:
    a, b, c, d = (value << 16 for value in ROTATIONS[degrees])
    content = video.read_bytes()
    matrix = content.index(b"tkhd") + 44  # the display matrix of the track header
    turned = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path = tmp_path / "turned.mp4"
    path.write_bytes(content[:matrix] + turned + content[matrix + 36 :])
    times = np.array([0.0, 1.0])
    with open_video(video, "pyav") as plain:
        expected = np.rot90(plain.frames(times), k=-degrees // 90, axes=(1, 2))
    for reader in READERS:
        with open_video(path, reader) as opened:
            found = opened.frames(times)
            assert found.shape[1:3] == (opened.info.height, opened.info.width)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("reader", READERS)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, reader: ReaderName, kind: str) -> None:
    path = tmp_path / f"{kind}.mp4"
    said = write_bad(kind, write_film(tmp_path / "good.mp4"), path)
    with (
        pytest.raises(InputError, match=rf"{kind}\.mp4: {said}") as caught,
        open_video(path, reader) as opened,
    ):
        opened.frames(opened.info.times_s)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_cover_art_is_no_video(tmp_path: Path, reader: ReaderName) -> None:
    picture, sound = tmp_path / "cover.png", tmp_path / "sound.mp4"
    write_bad("picture", picture, picture)
    write_bad("sound", sound, sound)
    song = tmp_path / "song.m4a"
    with av.open(str(sound)) as source, av.open(str(song), "w", format="mp4") as out:
        track = out.add_stream_from_template(source.streams.audio[0])
        with av.open(str(picture)) as still:
            cover = out.add_stream_from_template(still.streams.video[0])
            cover.disposition = av.stream.Disposition.attached_pic
            packets = [*source.demux(source.streams.audio[0]), *still.demux()]
            for packet in packets:
                if packet.dts is not None:
                    packet.stream = track if packet.stream.type == "audio" else cover
                    out.mux(packet)
    with pytest.raises(InputError, match="has no video stream, only audio"):
        open_video(song, reader)


@pytest.mark.parametrize("reader", READERS)
def test_variable_frame_rate_is_read_by_time(tmp_path: Path, reader: ReaderName) -> None:
    stamps = [0, 1, 2, 3, 10, 11, 30, 31, 32, 60]
    path = write_video(tmp_path / "vfr.mp4", stamps=stamps)
    with open_video(path, reader) as opened:
        np.testing.assert_allclose(opened.info.times_s, np.array(stamps) / FPS, atol=1e-4)
        times = np.array([0.0, 5.0, 9.9, 10.0, 29.5, 31.2, 59.0, 60.0, 70.0]) / FPS
        assert numbers(opened.frames(times)) == [0, 3, 3, 4, 5, 7, 8, 9, 9]


@pytest.mark.parametrize("start", [0, 13])
@pytest.mark.parametrize("name", ["vfr.mp4", "vfr.mkv"])
def test_readers_agree_on_variable_frame_rate(tmp_path: Path, name: str, start: int) -> None:
    stamps = [start + k for k in [0, 1, 2, 3, 10, 11, 30, 31, 32, 60]]
    path = write_video(tmp_path / name, stamps=stamps)
    times = np.linspace(0, 3, 50)
    with open_video(path, "decord") as left, open_video(path, "pyav") as right:
        np.testing.assert_array_equal(left.frames(times), right.frames(times))


def test_reopened_decord_gives_the_same_frames(
    video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = np.arange(COUNT) / FPS
    with open_video(video, "decord") as opened:
        whole = opened.frames(times)
    monkeypatch.setattr("pjepa.video.reader.REOPEN_FRAMES", 10)
    with open_video(video, "decord") as opened:
        first = opened._video  # type: ignore[attr-defined]
        parts = [opened.frames(times[k : k + 7]) for k in range(0, COUNT, 7)]
        assert opened._video is not first  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_default_reader_decodes_containers_without_an_index(tmp_path: Path) -> None:
    path = write_video(tmp_path / "stream.ts")
    with open_video(path) as opened:
        assert numbers(opened.frames(np.array([0.0, 0.4, 1.0]))) == [0, 10, 25]


@pytest.mark.parametrize("width", [16, 48, 72])
def test_default_reader_decodes_narrow_frames(tmp_path: Path, width: int) -> None:
    with open_video(write_video(tmp_path / "narrow.mp4", width=width)) as opened:
        assert numbers(opened.frames(np.array([0.0, 0.4, 1.0]))) == [0, 10, 25]


@pytest.mark.parametrize("name", ["plain.mp4", "plain.mkv", "plain.ts"])
def test_skipped_and_sought_frames_are_those_of_plain_decoding(tmp_path: Path, name: str) -> None:
    path = write_video(tmp_path / name)
    with av.open(str(path)) as container:
        plain = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    with open_video(path, "pyav") as opened:
        for window, step, stride in ((5, 3, 5), (8, 2, 1), (6, 1, 6)):  # the second goes back
            for first in range(0, COUNT, step * stride):
                wanted = np.arange(first, first + window * step, step).clip(max=COUNT - 1)
                found = opened.frames(opened.info.times_s[wanted])
                np.testing.assert_array_equal(found, plain[wanted])


def test_damage_that_the_decoder_conceals_is_no_frame(tmp_path: Path) -> None:
    path = write_patched(write_film(tmp_path / "good.mp4"), tmp_path / "patched.mp4")
    said = r"patched\.mp4: \d+ of 40 frames cannot be decoded, from 0\.8 to"
    with pytest.raises(InputError, match=said), open_video(path, "pyav") as opened:
        opened.frames(np.arange(0, 2.5, 0.0625))


def test_frames_keep_the_size_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "two sizes.ts"
    parts = [write_video(tmp_path / "a.ts"), write_video(tmp_path / "b.ts", COUNT + 2, 2 * WIDTH)]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    with open_video(path, "pyav") as opened:
        found = opened.frames(opened.info.times_s)
    assert found.shape == (2 * COUNT, HEIGHT, WIDTH, 3)
    assert numbers(found) == [*range(COUNT), *range(COUNT)]
