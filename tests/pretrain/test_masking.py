import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pjepa.model.masking import random_targets


@given(st.integers(2, 500), st.floats(0.01, 0.99), st.integers(0, 10))
def test_targets_and_context_partition_the_take(tokens, ratio, seed):
    target = random_targets(tokens, ratio, np.random.default_rng(seed))
    assert len(target) == tokens
    assert 1 <= target.sum() <= tokens - 1
    assert target.sum() == np.clip(round(ratio * tokens), 1, tokens - 1)


def test_every_token_is_hidden_equally_often():
    rng = np.random.default_rng(0)
    share = np.mean([random_targets(20, 0.8, rng) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(share, 0.8, atol=0.03)
