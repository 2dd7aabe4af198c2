"""Time stamps that jump: every frame is there once, time goes on, and the jump is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pjepa.core.time import Sampling, cut_steps, token_count
from pjepa.video.reader import Reader, open_video
from pjepa.video.timeline import Clock
from tests.video.corpus import COUNT, FPS, X264, Film, read_number, write_film

HOURS = 3 * 3600 * FPS  # in frames
WRAP = (1 << 33) // (90_000 // FPS)  # where the stamps of a transport stream start again
COPY = {"mpegts_copyts": "1"}
PLAIN = Film("plain.ts", "libx264", X264, b_frames=2)


def numbers(reader: Reader) -> list[int]:
    """The frames one after the other, then some of them at random: always the same."""
    times = reader.info.times_s + 0.3 / FPS
    found = [read_number(picture) for picture in reader.frames(times)]
    for place in np.random.default_rng(0).permutation(len(times))[:12].tolist():
        assert read_number(reader.frames(times[[place]])[0]) == found[place]
    return found


def joined(path: Path, *parts: Path) -> Path:
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def test_recordings_laid_end_to_end_keep_all_frames(tmp_path: Path) -> None:
    part = write_film(PLAIN, tmp_path)
    with open_video(joined(tmp_path / "twice.ts", part, part)) as reader:
        assert numbers(reader) == [*range(COUNT), *range(COUNT)]
        assert reader.info.duration_s == pytest.approx(2 * COUNT / FPS, abs=0.05)
        (jump,) = reader.info.jumps
    assert jump.time_s == pytest.approx(COUNT / FPS, abs=0.05)
    assert str(jump).startswith("time stamps jump by ")


@pytest.mark.parametrize("first", [0, HOURS])  # an encoder that restarts hours ahead, or back at 0
def test_a_jump_is_not_filled_with_one_frame(tmp_path: Path, first: int) -> None:
    parts = [
        write_film(
            dataclasses.replace(
                PLAIN, name=f"{start}.ts", muxer=COPY, stamps=tuple(range(start, start + COUNT))
            ),
            tmp_path,
        )
        for start in (first, HOURS - first)
    ]
    with open_video(joined(tmp_path / "restart.ts", *parts)) as reader:
        assert numbers(reader) == [*range(COUNT), *range(COUNT)]
        assert token_count(reader.info.duration_s, 4.0) == 24
        assert len(reader.info.jumps) == 1
        assert abs(reader.info.jumps[0].by_s) > 3600


def test_stamps_that_start_again_after_33_bits_do_not_jump(tmp_path: Path) -> None:
    stamps = tuple(range(WRAP - COUNT // 2, WRAP + COUNT // 2))
    film = dataclasses.replace(PLAIN, name="wrap.ts", muxer=COPY, stamps=stamps)
    with open_video(write_film(film, tmp_path)) as reader:
        assert numbers(reader) == list(range(COUNT))
        assert reader.info.jumps == ()
        assert reader.info.duration_s == pytest.approx(COUNT / FPS, abs=0.05)


@pytest.mark.parametrize(("gap_s", "jumps"), [(9, 0), (11, 1)])
def test_a_pause_is_kept_up_to_the_limit(tmp_path: Path, gap_s: int, jumps: int) -> None:
    stamps = tuple(k + (gap_s * FPS if k >= 40 else 0) for k in range(COUNT))
    film = Film("pause.mp4", "libx264", X264, stamps=stamps)
    with open_video(write_film(film, tmp_path)) as reader:
        assert numbers(reader) == list(range(COUNT))
        assert len(reader.info.jumps) == jumps
        shown = COUNT / FPS + (0 if jumps else gap_s)
        assert reader.info.times_s[-1] == pytest.approx(shown - 1 / FPS, abs=0.05)
    with open_video(tmp_path / "pause.mp4", max_gap_s=60) as reader:
        assert reader.info.jumps == ()


def test_a_time_lapse_is_no_row_of_jumps(tmp_path: Path) -> None:
    film = Film("lapse.mp4", "libx264", X264, stamps=tuple(range(0, 30 * FPS * COUNT, 30 * FPS)))
    with open_video(write_film(film, tmp_path)) as reader:
        assert reader.info.jumps == ()
        assert reader.info.times_s[-1] == pytest.approx(30.0 * (COUNT - 1))


def test_no_window_reaches_across_a_jump() -> None:
    jumps_s = [2.88, 5.0]
    cuts = cut_steps(jumps_s, 4.0)
    assert cuts == [12, 20]
    for mode in ("block", "trailing"):
        windows = Sampling(4.0, 2, 8, "take", mode, 2).windows(30, None, jumps_s)  # type: ignore[arg-type]
        assert [step for w in windows for step in range(w.start, w.stop)] == list(range(30))
        assert not [w for w in windows for cut in cuts if w.first < cut < w.stop]


def test_the_clock_of_a_stream_follows_the_same_rule() -> None:
    clock = Clock(1 / 90_000, FPS, 10.0)
    stamps = [*range(0, 72), *range(5, 20), *range(90_000, 90_005)]
    times = [clock.time(3600 * stamp) for stamp in stamps]
    np.testing.assert_allclose(times, np.arange(len(stamps)) / FPS, atol=1e-9)
    assert clock.jump is None
    assert clock.duration == pytest.approx(len(stamps) / FPS)
