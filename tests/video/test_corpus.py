"""Every reader, asked in any order, gives the frame asked for or refuses in one line.

`python -m tests.video.test_corpus` prints which reader reads what, and what is refused and why.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pjepa.core.section import ReaderName
from pjepa.ui.console import InputError
from pjepa.video.reader import DecordReader, PyavReader, Reader, open_video
from tests.video.corpus import COUNT, FPS, Film, corpus, read_number, write_film

READERS: tuple[ReaderName, ...] = ("pyav", "decord")
FILMS = {film.name: film for film in corpus()}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


def orders(count: int) -> list[list[int]]:
    """Places to ask for together: in order, thinned, single ones at random, from the end back."""
    single = np.random.default_rng(0).permutation(count)[:24].tolist()
    return [
        *(list(range(first, min(first + 8, count))) for first in range(0, count, 8)),
        *(list(range(first, min(first + 24, count), 4)) for first in range(0, count, 6)),
        *([number] for number in single),
        *([number, min(number + 3, count - 1)] for number in range(count - 1, 0, -9)),
    ]


def wrong_frames(film: Film, reader: Reader) -> tuple[list[str], set[str]]:
    """Frames that are not those asked for, and refusals."""
    wrong, refused = [], set()
    times = reader.info.times_s + 0.3 / FPS
    for places in orders(len(times)):
        try:
            pictures = reader.frames(times[places])
        except InputError as error:
            refused.add(str(error))
            continue
        for place, picture in zip(places, pictures, strict=True):
            if (found := read_number(picture)) != film.shown[place]:
                wrong.append(f"asked for {film.shown[place]}, got {found}")
    return wrong, refused


@pytest.mark.parametrize("name", FILMS)
def test_no_reader_returns_another_frame(folder: Path, name: str) -> None:
    film = FILMS[name]
    path = write_film(film, folder)
    for reader in READERS:
        with open_video(path, reader) as opened:
            np.testing.assert_allclose(opened.info.times_s, film.times_s, atol=2e-3)
            wrong, refused = wrong_frames(film, opened)
            fault = opened.fault()
        assert not wrong, (reader, wrong)
        assert bool(refused) == (fault is not None) == film.damaged, (reader, refused, fault)
    path.unlink()


def test_a_recording_that_starts_between_key_frames(folder: Path) -> None:
    whole = write_film(FILMS["b-frames.ts"], folder).read_bytes()
    path = folder / "tail.ts"
    path.write_bytes(whole[:376] + whole[len(whole) * 2 // 5 // 188 * 188 :])
    with open_video(path) as opened:
        found = [read_number(picture) for picture in opened.frames(opened.info.times_s)]
        assert opened.fault() is None
    assert found == list(range(found[0], COUNT))
    assert 12 < found[0] < 60


def test_corpus_is_large_and_decord_has_its_share(folder: Path) -> None:
    assert len(FILMS) >= 60
    for name in ("open.mp4", "hevc-open.mkv", "mpeg2-b.mp4"):  # decord would give other frames
        with open_video(write_film(FILMS[name], folder), "decord") as opened:
            assert opened.index.packets.leading
            assert isinstance(opened, PyavReader)
    for name in ("plain.mp4", "plain.mkv", "vp9.webm"):
        with open_video(write_film(FILMS[name], folder), "decord") as opened:
            assert isinstance(opened, DecordReader)


def main() -> None:
    """The table of the corpus."""
    with tempfile.TemporaryDirectory() as place:
        for film in FILMS.values():
            path = write_film(film, Path(place))
            row = []
            for reader in READERS:
                with open_video(path, reader) as opened:
                    wrong, refused = wrong_frames(film, opened)
                kind = type(opened).__name__.removesuffix("Reader").lower()
                row.append(f"{reader} -> {kind}: {len(wrong)} wrong")
            reason = f"; refused: {min(refused)}" if refused else ""
            sys.stdout.write(f"{film.name:20} {', '.join(row)}{reason}\n")


if __name__ == "__main__":
    main()
