"""Windows partition the tokens; frames are chosen by presentation time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.video.sampling import (
    Window,
    frame_indices,
    frame_times,
    padded_frame_times,
    token_count,
    token_segments,
    token_times,
    windows,
)

SECONDS = st.floats(0, 60, allow_nan=False)
SEGMENTS = st.lists(st.tuples(SECONDS, SECONDS), max_size=12)


@given(
    count=st.integers(1, 300),
    rate=st.sampled_from([0.5, 1.0, 4.0, 7.5]),
    steps=st.sampled_from([1, 2, 8, 32]),
    scope=st.sampled_from(["segment", "take"]),
    pairs=SEGMENTS,
)
def test_every_token_lies_in_exactly_one_window(
    count: int, rate: float, steps: int, scope: str, pairs: list[tuple[float, float]]
) -> None:
    limits = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    plan = windows(count, rate, steps, scope, limits)  # type: ignore[arg-type]
    assert [k for w in plan for k in range(w.start, w.stop)] == list(range(count))
    assert all(1 <= w.tokens <= steps for w in plan)
    if scope == "segment":
        segments = token_segments(token_times(count, rate), limits)
        assert all(len(set(segments[w.start : w.stop].tolist())) == 1 for w in plan)


@given(count=st.integers(1, 300), steps=st.sampled_from([1, 4, 32]))
def test_take_scope_gives_full_windows_but_the_last(count: int, steps: int) -> None:
    plan = windows(count, 4.0, steps, "take")
    assert all(w.tokens == steps for w in plan[:-1])


@given(pairs=SEGMENTS, count=st.integers(1, 100))
def test_token_belongs_to_a_segment_that_holds_its_time(
    pairs: list[tuple[float, float]], count: int
) -> None:
    limits = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    times = token_times(count, 4.0)
    for time, segment in zip(times, token_segments(times, limits), strict=True):
        holding = [row for row, (start, end) in enumerate(limits) if start <= time < end]
        assert (segment in holding) if holding else (segment == -1)


def test_segment_end_is_exclusive_and_gaps_form_their_own_runs() -> None:
    plan = windows(12, 4.0, 32, "segment", np.array([[0.5, 1.0], [1.0, 1.5], [2.0, 2.5]]))
    assert plan == [Window(a, b) for a, b in [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 12)]]


@pytest.mark.parametrize(
    ("duration", "expected"), [(0.0, 1), (0.01, 1), (1.0, 4), (1.0000001, 4), (1.01, 5)]
)
def test_token_count(duration: float, expected: int) -> None:
    assert token_count(duration, 4.0) == expected


def test_token_covers_its_frames_and_padding_repeats_the_last() -> None:
    assert frame_times(Window(3, 5), 4.0, 2).tolist() == [0.75, 0.875, 1.0, 1.125]
    assert padded_frame_times(Window(3, 4), 4.0, 2, 2).tolist() == [0.75, 0.875, 0.875, 0.875]
    assert padded_frame_times(Window(3, 5), 4.0, 3, 1).tolist() == [0.75, 1.0, 1.0]


def test_frame_is_the_last_one_displayed() -> None:
    shown = np.array([0.0, 0.1, 0.2, 0.35])
    times = np.array([0.0, 0.0999, 0.1 - 1e-7, 0.19, 0.34, 0.36, 9.0])
    assert frame_indices(times, shown).tolist() == [0, 0, 1, 1, 2, 3, 3]
