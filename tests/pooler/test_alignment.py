"""Orthogonal Procrustes: a turned and shifted copy is turned back, and nothing is stretched."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.pooler.stored import agreement, procrustes


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_turned_copy_is_turned_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(60, 6)).astype(np.float32)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    source = (target @ rotation + rng.normal(size=6)).astype(np.float32)
    found = procrustes(source, target)
    np.testing.assert_allclose(found.turned(source), target, atol=1e-4)
    assert agreement(found.turned(source), target) > 0.999
    assert found.turned(source).dtype == np.float32


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
