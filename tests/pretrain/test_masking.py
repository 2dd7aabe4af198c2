import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pjepa.model.masking import segment_targets, uniform_targets


@given(st.integers(2, 500), st.floats(0.01, 0.99), st.integers(0, 10))
def test_targets_and_context_partition_the_take(tokens, ratio, seed):
    target = uniform_targets(tokens, ratio, np.random.default_rng(seed))
    assert len(target) == tokens
    assert 1 <= target.sum() <= tokens - 1
    assert target.sum() == np.clip(round(ratio * tokens), 1, tokens - 1)


def test_every_token_is_hidden_equally_often():
    rng = np.random.default_rng(0)
    share = np.mean([uniform_targets(20, 0.8, rng) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(share, 0.8, atol=0.03)


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=12),
    st.floats(0.05, 0.95),
    st.integers(0, 10),
)
def test_segments_are_hidden_whole_near_the_ratio(lengths, ratio, seed):
    segment = np.repeat(np.arange(len(lengths)) + 3, lengths)
    target = segment_targets(segment, ratio, np.random.default_rng(seed))
    hidden = {s for s in set(segment) if target[segment == s].any()}
    assert all(target[segment == s].all() for s in hidden)
    assert 1 <= len(hidden) < len(lengths)
    assert abs(target.sum() - ratio * len(segment)) <= max(lengths) + 1


def test_a_take_of_one_segment_is_masked_by_tokens():
    target = segment_targets(np.zeros(10, int), 0.8, np.random.default_rng(0))
    assert target.sum() == 8
