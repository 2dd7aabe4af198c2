"""Windows partition the tokens; frames are chosen by presentation time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.time import (
    Sampling,
    Window,
    frame_indices,
    token_count,
    token_segments,
    token_times,
)

SECONDS = st.floats(0, 60, allow_nan=False)
SEGMENTS = st.lists(st.tuples(SECONDS, SECONDS), max_size=12)
MODES = st.sampled_from(["block", "trailing"])


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    steps = draw(st.sampled_from([1, 2, 8, 32]))
    return Sampling(
        draw(st.sampled_from([0.5, 1.0, 4.0, 7.5])),
        draw(st.sampled_from([1, 2, 3])),
        steps,
        draw(st.sampled_from(["segment", "take"])),
        draw(MODES),
        draw(st.integers(1, steps)),
    )


@given(count=st.integers(1, 300), sampling=samplings(), pairs=SEGMENTS)
def test_every_token_lies_in_exactly_one_window(
    count: int, sampling: Sampling, pairs: list[tuple[float, float]]
) -> None:
    limits = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    plan = sampling.windows(count, limits)
    assert [k for w in plan for k in range(w.start, w.stop)] == list(range(count))
    longest = sampling.steps if sampling.mode == "block" else sampling.stride
    assert all(1 <= w.tokens <= longest for w in plan)
    if sampling.scope == "segment":
        segments = token_segments(token_times(count, sampling.tokens_fps), limits)
        assert all(len(set(segments[w.first : w.stop].tolist())) == 1 for w in plan)
    else:
        assert all(w.tokens == longest for w in plan[:-1])


@given(count=st.integers(1, 300), sampling=samplings(), pairs=SEGMENTS)
def test_a_token_stands_at_its_place_and_sees_no_further_than_is_said(
    count: int, sampling: Sampling, pairs: list[tuple[float, float]]
) -> None:
    limits = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    times = token_times(count, sampling.tokens_fps)
    for window in sampling.windows(count, limits):
        shown = sampling.frame_times(window).reshape(sampling.steps, sampling.tubelet)
        kept = shown[window.place : window.place + window.tokens]
        np.testing.assert_allclose(kept[:, 0], times[window.start : window.stop])
        if sampling.tubelet > 1:
            last = times[window.start] + sampling.lookahead_s
            assert shown.max() < last - 1e-9
        assert (np.diff(shown.reshape(-1)) >= 0).all()


@given(count=st.integers(1, 300), sampling=samplings())
def test_trailing_windows_end_with_their_tokens_and_hold_all_history_they_can(
    count: int, sampling: Sampling
) -> None:
    plan = replace(sampling, mode="trailing", scope="take").windows(count)
    assert all(w.place + w.tokens == sampling.steps for w in plan)
    assert all(w.first == max(0, w.stop - sampling.steps) for w in plan)


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
    limits = np.array([[0.5, 1.0], [1.0, 1.5], [2.0, 2.5]])
    plan = Sampling(4.0, 2, 32).windows(12, limits)
    assert plan == [Window(k, k + 2, k, 0) for k in range(0, 12, 2)]


@pytest.mark.parametrize(
    ("duration", "expected"), [(0.0, 1), (0.01, 1), (1.0, 4), (1.0000001, 4), (1.01, 5)]
)
def test_token_count(duration: float, expected: int) -> None:
    assert token_count(duration, 4.0) == expected


def test_a_token_covers_its_frames_and_padding_repeats_the_nearest() -> None:
    block = Sampling(4.0, 2, 3)
    assert block.frame_times(Window(3, 5, 3, 0)).tolist() == [0.75, 0.875, 1.0, 1.125, 1.125, 1.125]
    trailing = Sampling(4.0, 2, 3, "take", "trailing")
    first, _, third, fourth = trailing.windows(4)
    assert trailing.frame_times(first).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 0.125]
    assert trailing.frame_times(third).tolist() == [0.0, 0.125, 0.25, 0.375, 0.5, 0.625]
    assert trailing.frame_times(fourth).tolist() == [0.25, 0.375, 0.5, 0.625, 0.75, 0.875]
    assert Sampling(4.0, 1, 3).frame_times(Window(3, 5, 3, 0)).tolist() == [0.75, 1.0, 1.0]


def test_frame_is_the_last_one_displayed() -> None:
    shown = np.array([0.0, 0.1, 0.2, 0.35])
    times = np.array([0.0, 0.0999, 0.1 - 1e-7, 0.19, 0.34, 0.36, 9.0])
    assert frame_indices(times, shown).tolist() == [0, 0, 1, 1, 2, 3, 3]
