"""Mean pooling and its cell-keeping form."""

import numpy as np
import pytest

from pjepa.pooler.stored import pool, pooled_width

PATCHES = np.random.default_rng(0).normal(size=(5, 9, 4)).astype(np.float16)


def test_average_is_the_mean_over_cells_in_float32() -> None:
    tokens = pool(PATCHES, "average")
    assert tokens.dtype == np.float32
    np.testing.assert_allclose(
        tokens, PATCHES.astype(np.float64).mean(axis=1), rtol=1e-5, atol=1e-6
    )
    assert tokens.shape == (5, pooled_width(9, 4, "average"))


def test_concat_keeps_the_cells_apart() -> None:
    tokens = pool(PATCHES, "concat")
    assert tokens.shape == (5, pooled_width(9, 4, "concat")) == (5, 36)
    np.testing.assert_array_equal(tokens.reshape(5, 9, 4), PATCHES.astype(np.float32))


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected patches \[steps, cells, width\]"):
        pool(PATCHES[0], "average")
