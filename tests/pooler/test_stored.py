"""Mean pooling, and the map that turns tokens of one pooler into the space of another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.pooler.stored import agreement, pool, procrustes

PATCHES = np.random.default_rng(0).normal(size=(5, 9, 4)).astype(np.float16)


def test_a_token_is_the_mean_of_its_cells_or_all_of_them() -> None:
    mean = pool(PATCHES, "average")
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, PATCHES.astype(np.float64).mean(axis=1), rtol=1e-5, atol=1e-6)
    whole = pool(PATCHES, "concat")
    np.testing.assert_array_equal(whole.reshape(5, 9, 4), PATCHES.astype(np.float32))
    with pytest.raises(ValueError, match=r"expected patches \[steps, cells, width\]"):
        pool(PATCHES[0], "average")


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_turned_copy_is_turned_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(60, 6)).astype(np.float32)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    source = (target @ rotation + rng.normal(size=6)).astype(np.float32)
    found = procrustes(source, target).turned(source)
    np.testing.assert_allclose(found, target, atol=1e-4)
    assert agreement(found, target) > 0.999
    assert found.dtype == np.float32


def test_the_map_is_orthogonal_and_the_best_of_many() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 80, 5)).astype(np.float32)
    found = procrustes(source, target)
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(5), atol=1e-5)
    best = ((found.turned(source) - target) ** 2).sum()
    for _ in range(50):
        other = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        turned = (source - source.mean(0)) @ other + target.mean(0)
        assert ((turned - target) ** 2).sum() >= best - 1e-3
