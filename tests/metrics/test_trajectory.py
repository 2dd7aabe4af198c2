"""Trajectories whose diagnostics are known by hand, properties of all, and the degenerate ones."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from pjepa.metrics.bootstrap import PERCENTILES, group_weights, median_interval
from pjepa.metrics.trajectory import (
    binned_progress,
    path_2d,
    progress,
    segment_times,
    segment_vectors,
    trajectory,
)

LINE = np.array([[0.0, 0], [2, 0], [1, 0], [3, 0]])  # forward 2, back 1, forward 2
VECTORS = arrays(np.float64, (7, 3), elements=st.floats(-1, 1, width=32))


def test_a_path_that_turns_back_once_by_hand() -> None:
    found = trajectory(LINE)
    assert progress(LINE) == pytest.approx([0, 2 / 3, 1 / 3, 1])
    assert found.straightness == pytest.approx(3 / 5)
    assert found.efficiency == pytest.approx(1 / (1 + 2 / 3))  # 1 / (1 + 2 b), b = 1/3
    assert found.monotonic == pytest.approx(2 / 3)
    assert found.spearman == pytest.approx(0.8)
    # 0 is nearest to 2; 1 and 2 have two nearest each, one of them a neighbour; 3 is nearest to 1
    assert found.temporal_neighbor == pytest.approx((0 + 0.5 + 0.5 + 0) / 4)
    assert found.displacement == 3


def test_efficiency_pays_for_turning_back_and_not_for_detours_or_pace() -> None:
    assert trajectory(np.array([[0.0, 0], [1, 5], [2, 0]])).efficiency == pytest.approx(1)
    uneven = np.array([[0.0], [0.1], [0.1], [0.9], [1.0]])
    assert trajectory(uneven).efficiency == pytest.approx(1)
    assert trajectory(uneven).monotonic == 1
    beyond = np.array([[0.0], [2.0], [1.0]])  # past the end by 1 and back
    assert trajectory(beyond).efficiency == pytest.approx(1 / 3)
    small, large = np.array([[0.0], [0.6], [0.5], [1]]), np.array([[0.0], [0.9], [0.1], [1]])
    assert trajectory(small).monotonic == trajectory(large).monotonic
    assert trajectory(small).efficiency > trajectory(large).efficiency


@settings(max_examples=60, deadline=None)
@given(VECTORS)
def test_bounds_and_agreement(z: np.ndarray) -> None:
    found = trajectory(z)
    p = progress(z)
    if p is None:
        assert np.isnan([found.spearman, found.efficiency, found.monotonic]).all()
        return
    assert p[0] == pytest.approx(0)
    assert p[-1] == pytest.approx(1)
    assert 0 < found.efficiency <= 1 + 1e-9
    assert 0 < found.straightness <= 1 + 1e-9
    assert 0 <= found.temporal_neighbor <= 1
    if found.monotonic == 1:
        assert found.efficiency == pytest.approx(1, abs=1e-6)
    assert found.spearman == pytest.approx(spearmanr(np.arange(7), np.round(p, 9)).statistic)
    turned = trajectory(5 * z @ np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0])
    assert turned.efficiency == pytest.approx(found.efficiency, rel=1e-4)
    assert turned.straightness == pytest.approx(found.straightness, rel=1e-4)


def test_one_segment_or_none_is_undefined() -> None:
    for z in (np.zeros((0, 4)), np.ones((1, 4))):
        assert np.isnan(list(asdict(trajectory(z)).values())).all()
        assert np.isnan(list(asdict(path_2d(z)).values())).all()
        assert progress(z) is None


def test_a_round_trip_has_no_axis_and_a_constant_path_no_length() -> None:
    round_trip = trajectory(np.array([[1.0, 0], [0, 1], [1, 0]]))
    assert (round_trip.straightness, round_trip.displacement) == (0, 0)
    assert np.isnan([round_trip.spearman, round_trip.efficiency, round_trip.monotonic]).all()
    constant = trajectory(np.tile([[0.6, 0.8]], (5, 1)))
    assert np.isnan(constant.straightness)
    assert constant.displacement == 0
    assert constant.adjacent_cosine == pytest.approx(0)
    # chance: an end has one neighbour among four others, the rest two
    assert constant.temporal_neighbor == pytest.approx((2 * 1 + 3 * 2) / 4 / 5)


def test_segments_are_pooled_then_normalised_and_gaps_left_out() -> None:
    features = np.array([[2, 0], [4, 0], [9, 9], [0, 5], [0, 0], [0, 0]], np.float32)
    segment = np.array([0, 0, -1, 1, 2, 2], np.int32)
    z = segment_vectors(features, segment)
    assert z.tolist() == [[1, 0], [0, 1], [0, 0]]
    times = np.arange(6.0)
    assert segment_times(times, segment) == pytest.approx([0, 2.5 / 4, 1])
    nothing = np.full(6, -1, np.int32)
    assert segment_vectors(features, nothing).shape == (0, 2)
    assert segment_times(times, nothing).shape == (0,)


def test_progress_in_bins_of_time() -> None:
    times, p = np.array([0.0, 0.1, 0.5, 1.0]), np.array([0, 0.2, 0.7, 1])
    found = binned_progress(times, p, 4)
    assert found[[0, 2, 3]] == pytest.approx([0.1, 0.7, 1])
    assert np.isnan(found[1])


def test_steps_of_a_path_on_a_map() -> None:
    found = path_2d(np.array([[0.0, 0], [3, 4], [3, 5], [3, 7]]))
    assert (found.median_step, found.longest_step, found.length) == (2, 5, 8)
    assert found.step_90 == pytest.approx(np.percentile([5, 1, 2], 90))
    assert found.displacement == pytest.approx(np.hypot(3, 7))
    assert found.straightness == pytest.approx(np.hypot(3, 7) / 8)


def test_takes_without_a_value_are_left_out_of_the_median() -> None:
    values = {"a": 1.0, "b": 2.0, "c": 4.0, "d": np.nan, "e": 10.0}
    groups = dict.fromkeys(values, "one")
    found = median_interval(values, groups, 50, 0)
    assert found is not None
    assert (found.mean, found.low, found.high) == (3, 3, 3)  # one group: nothing to resample
    assert median_interval({"a": np.nan}, groups, 50, 0) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.integers(0, 5))
def test_every_resample_is_a_median_of_repeated_takes(values: list[float], seed: int) -> None:
    groups = {str(index): f"g{index // 2}" for index in range(len(values))}
    found = median_interval(dict(zip(groups, values, strict=True)), groups, 20, seed)
    weights = group_weights(list(groups.values()), 20, seed)[1:].astype(int)
    medians = [np.median(np.repeat(values, row)) for row in weights]
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(medians, PERCENTILES)))
