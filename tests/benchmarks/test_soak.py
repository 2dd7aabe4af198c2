"""The soak test's accounts: a second that is lost and not said is an error."""

from __future__ import annotations

import pytest

from benchmarks.soak import PART_S, Life, check_rows, lives_of


def life(video_s: float, jumps: list[float]) -> Life:
    return Life("ended", 3, begin_s=50.0, jumps=jumps, summary={"video_s": video_s})


def test_restarts_and_said_garbage_are_accounted_for() -> None:
    restarts = [-float(PART_S)] * 2
    life(50 + 3 * PART_S, restarts).check()
    life(50 + 3 * PART_S - 12, [*restarts, 12.0]).check()
    with pytest.raises(SystemExit, match=r"12\.0 s of 300 s are unaccounted for"):
        life(50 + 3 * PART_S - 12, restarts).check()
    with pytest.raises(SystemExit, match="3 parts sent"):
        life(50 + 3 * PART_S, restarts[:1]).check()


def test_steps_with_a_hole_are_an_error() -> None:
    rows = [{"start": 0.0, "end": 1.0}, {"start": 1.0, "end": 2.0}]
    check_rows(rows)
    with pytest.raises(SystemExit, match=r"a hole from 2\.0 to 3\.0 s"):
        check_rows([*rows, {"start": 3.0, "end": 4.0}])


def test_every_hour_has_each_kind_of_end() -> None:
    for hours in (0.1, 2.0):
        lives = lives_of(hours)
        assert [one.end for one in lives] == ["stalled", "killed", "ended"]
        assert min(one.parts for one in lives) >= 2  # so that each meets a restart and garbage
