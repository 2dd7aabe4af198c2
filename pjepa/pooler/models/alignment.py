"""Mapping tokens of one pooler into the space of another.

Poolers trained on different folds put the same content in different directions. Their outputs
for windows that neither was trained on define the rotation between the two spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Alignment:
    """The map tokens -> (tokens - shift_from) rotation + shift_to."""

    rotation: NDArray[np.float32]  # [D, D] orthogonal
    shift_from: NDArray[np.float32]  # [D]
    shift_to: NDArray[np.float32]  # [D]

    def turned(self, tokens: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return tokens [T, D] in the other pooler's space."""
        turned = (tokens - self.shift_from) @ self.rotation + self.shift_to
        return turned.astype(np.float32)


def procrustes(source: NDArray[np.float32], target: NDArray[np.float32]) -> Alignment:
    """Return the orthogonal map from `source` [M, D] closest to `target` [M, D], both centred."""
    a, b = source.astype(np.float64), target.astype(np.float64)
    left, _, right = np.linalg.svd((a - a.mean(0)).T @ (b - b.mean(0)))
    return Alignment(
        (left @ right).astype(np.float32),
        a.mean(0).astype(np.float32),
        b.mean(0).astype(np.float32),
    )


def agreement(source: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """Return the share of the variance of `target` that `source` explains as is, at most 1."""
    rest = ((target - source).astype(np.float64) ** 2).sum()
    spread = ((target - target.mean(0)).astype(np.float64) ** 2).sum()
    return float(1 - rest / max(spread, 1e-12))
