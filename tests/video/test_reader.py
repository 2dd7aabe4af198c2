"""Both readers give equal, upright frames at times counted from the first displayed one.

test_corpus.py asks for frames of many kinds of files; here are sizes, times, turns and bad files.
"""

import shutil
from pathlib import Path

import av
import numpy as np
import pytest

from pjepa.core.section import ReaderName
from pjepa.ui.console import InputError
from pjepa.video.reader import Reader, open_video
from tests.video import corpus
from tests.video.corpus import COUNT, FPS, LATE, UNEVEN, X264, Film, read_number
from tests.video.films import BAD, write_bad, write_film

READERS: list[ReaderName] = ["decord", "pyav"]
PLAIN = Film("plain.mp4", "libx264", X264, size=(80, 96))


def numbers(reader: Reader, times_s: list[float]) -> list[int]:
    return [read_number(picture) for picture in reader.frames(np.array(times_s))]


def decoded(path: Path) -> np.ndarray:
    """Every frame, by plain decoding."""
    with av.open(str(path)) as film:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.write_film(PLAIN, tmp_path_factory.mktemp("video"))


@pytest.mark.parametrize("reader", READERS)
def test_the_frame_displayed_at_a_time(video: Path, reader: ReaderName) -> None:
    with open_video(video, reader) as opened:
        info = opened.info
        assert (info.height, info.width) == (80, 96)
        assert info.fps == pytest.approx(FPS)
        assert info.duration_s == pytest.approx(COUNT / FPS)
        times = [0.0, 0.039, 0.04, 1.0, 0.5, 0.5, 2.84, 99.0]
        assert numbers(opened, times) == [0, 0, 1, 25, 12, 12, 71, 71]


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotated_video_stands_upright(video: Path, tmp_path: Path, degrees: int) -> None:
    path = tmp_path / "turned.mp4"
    shutil.copy(video, path)
    corpus.turn(path, degrees)
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


def test_cover_art_is_no_video(tmp_path: Path) -> None:
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
        open_video(song)


def test_reopened_decord_gives_the_same_frames(
    video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = np.arange(COUNT) / FPS
    with open_video(video, "decord") as opened:
        whole = opened.frames(times)
    monkeypatch.setattr("pjepa.video.reader.REOPEN_FRAMES", 10)
    with open_video(video, "decord") as opened:
        parts = [opened.frames(times[k : k + 7]) for k in range(0, COUNT, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("stamps", [PLAIN.stamps, LATE, UNEVEN], ids=["plain", "late", "uneven"])
@pytest.mark.parametrize("end", ["mp4", "mkv", "ts"])
def test_skipped_and_sought_frames_are_those_of_plain_decoding(
    tmp_path: Path, end: str, stamps: tuple[int, ...]
) -> None:
    film = Film(f"plain.{end}", "libx264", X264, b_frames=2, stamps=stamps)
    path = corpus.write_film(film, tmp_path)
    plain = decoded(path)
    for reader in READERS:
        with open_video(path, reader) as opened:
            assert opened.info.times_s[0] == 0.0
            for window, step, stride in ((5, 3, 5), (8, 2, 1), (6, 1, 6)):  # the second goes back
                for first in range(0, COUNT, step * stride):
                    asked = np.arange(first, first + window * step, step).clip(max=COUNT - 1)
                    found = opened.frames(opened.info.times_s[asked])
                    np.testing.assert_array_equal(found, plain[asked])


@pytest.mark.parametrize("width", [16, 24, 48])  # decord would miscount their channels
def test_narrow_frames(tmp_path: Path, width: int) -> None:
    path = write_film(tmp_path / "narrow.mp4", size=width)
    with open_video(path, "decord") as opened:
        np.testing.assert_array_equal(opened.frames(opened.info.times_s), decoded(path))


def test_frames_keep_the_size_of_the_first(tmp_path: Path) -> None:
    later = tuple(range(COUNT + 2, 2 * COUNT + 2))
    small = Film("a.ts", "libx264", X264)
    large = Film("b.ts", "libx264", X264, size=(192, 192), stamps=later)
    parts = [corpus.write_film(film, tmp_path).read_bytes() for film in (small, large)]
    path = tmp_path / "two sizes.ts"
    path.write_bytes(b"".join(parts))
    with open_video(path) as opened:
        assert opened.frames(opened.info.times_s[-1:]).shape[1:3] == (corpus.SIDE, corpus.SIDE)
        found = opened.frames(opened.info.times_s)
    assert found.shape == (2 * COUNT, corpus.SIDE, corpus.SIDE, 3)
    assert [read_number(picture) for picture in found] == [*range(COUNT), *range(COUNT)]
