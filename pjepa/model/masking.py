"""Which tokens are hidden: the target set M, uniform over each take (paper Sec. 3.2)."""

from __future__ import annotations

import numpy as np


def target_count(tokens: int, ratio: float) -> int:
    """k = round(p_m n), at least one target and one context token."""
    return int(np.clip(round(ratio * tokens), 1, tokens - 1))


def uniform_targets(tokens: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """M as bool [T]: a uniformly random subset of the take's tokens."""
    target = np.zeros(tokens, bool)
    target[rng.permutation(tokens)[: target_count(tokens, ratio)]] = True
    return target
