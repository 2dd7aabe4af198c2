"""Found segments: causal, bounded, equal to the obvious version, as long as wanted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.runs import runs
from pjepa.model.segments import (
    FoundConfig,
    FoundParameters,
    OnlineSegments,
    SegmentRule,
    fit_threshold,
    take_segments,
)
from pjepa.ui.console import InputError

CONFIGS = st.builds(
    lambda shortest, mean, longest, window: FoundConfig(
        shortest + mean, shortest + mean + longest, shortest, window
    ),
    st.integers(1, 6),
    st.integers(0, 6),
    st.integers(0, 20),
    st.integers(1, 4),
)


def walk(seed: int, count: int, width: int = 3, steps: float = 0.2) -> np.ndarray:
    """Tokens [T, D] that jump now and then, as float32."""
    rng = np.random.default_rng(seed)
    jumps = rng.normal(size=(count, width)) * 3 * (rng.random((count, 1)) < steps)
    return (np.cumsum(jumps, axis=0) + rng.normal(size=(count, width))).astype(np.float32)


def found_segments(features: np.ndarray, found: FoundParameters) -> np.ndarray:
    """c(i) of a take as a whole."""
    return take_segments(features, None, SegmentRule("found", found=found))


def slow_segments(features: np.ndarray, found: FoundParameters) -> list[int]:
    """The definition, each token from its whole prefix."""
    config, w = found.config, found.config.window
    x = features.astype(np.float64) / found.std
    segment, start, ids = 0, 0, []
    for t in range(len(x)):
        ids.append(segment)
        changes = [
            ((x[s - w + 1 : s + 1].mean(0) - x[s - 2 * w + 1 : s - w + 1].mean(0)) ** 2).sum()
            for s in range(2 * w - 1, t + 1)
        ]
        large = len(changes) > 0 and changes[-1] > found.threshold * np.mean(changes)
        length = t + 1 - start
        if length >= config.max_tokens or (length >= config.shortest and large):
            segment, start = segment + 1, t + 1
    return ids


@given(st.integers(0, 10_000), st.integers(0, 60), CONFIGS, st.floats(0.0, 4.0))
def test_whole_or_one_token_at_a_time_it_is_the_definition_within_bounds_and_memory(
    seed: int, count: int, config: FoundConfig, threshold: float
) -> None:
    found = FoundParameters(config, threshold, np.array([1.0, 2.0, 0.5]))
    features = walk(seed, count)
    expected = slow_segments(features, found)
    assert found_segments(features, found).tolist() == expected
    online, ids = OnlineSegments(SegmentRule("found", found=found)), []
    for token in features:
        ids.append(int(online.push(token[None], ends=False)[0, 0]))
        assert len(online.state()["recent"]) <= 2 * config.window
    assert ids == expected
    lengths = runs(np.array(ids))[1]
    assert (lengths <= config.max_tokens).all()
    assert (lengths[:-1] >= config.shortest).all()


def test_a_still_picture_ends_segments_by_length_only() -> None:
    found = FoundParameters(FoundConfig(4, 10, window=3), 0.0, np.full(3, 0.3))
    segment = found_segments(np.full((25, 3), 0.1, np.float32), found)
    assert runs(segment)[1].tolist() == [10, 10, 5]


@pytest.mark.parametrize("tokens", [6, 11, 20])
def test_threshold_gives_the_mean_length_wanted(tokens: int) -> None:
    takes = [walk(seed, 400) for seed in range(6)]
    config = FoundConfig(tokens, 4 * tokens, min_tokens=2)
    threshold = fit_threshold(takes, config, np.ones(3))
    assert threshold == fit_threshold(takes, config, np.ones(3))
    for value in (threshold, float(np.float32(threshold))):
        found = FoundParameters(config, value, np.ones(3))
        count = sum(found_segments(take, found)[-1] + 1 for take in takes)
        assert 2400 / count == pytest.approx(tokens, rel=0.05)


def test_thresholds_exist_for_takes_too_short_or_still_to_tell() -> None:
    for takes in ([np.ones((1, 3))], [np.ones((50, 3))], [np.zeros((0, 3)), np.ones((2, 3))]):
        assert np.isfinite(fit_threshold(takes, FoundConfig(8, 20), np.ones(3)))


@pytest.mark.parametrize("values", [(0, 5), (8, 7), (8, 20, 9), (8, 20, 0), (8, 20, 2, 0)], ids=str)
def test_impossible_lengths_are_one_line(values: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"expected 1 <= min <= mean <= max") as error:
        FoundConfig(*values)
    assert "\n" not in str(error.value)
