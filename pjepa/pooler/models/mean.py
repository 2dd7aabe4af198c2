"""From the patches of one step to one token, with nothing to train (paper Sec. 3.1, mean-pool)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pjepa.core.files import read_object
from pjepa.pooler.models.facts import CONFIG, PoolerFacts

Cells = Literal["average", "concat"]


def pool(
    patches: NDArray[np.floating], cells: Cells = "average"
) -> NDArray[np.float32]:  # [steps, cells, width] -> [steps, width out]
    """Return tokens of every step: the mean over cells [steps, width], or cells side by side.

    Unlike the paper, `concat` [steps, cells * width] keeps where things are: a spatial mean of
    random features would lose it.
    """
    if patches.ndim != 3:
        raise ValueError(f"expected patches [steps, cells, width], found {list(patches.shape)}")
    if cells == "concat":
        return patches.reshape(len(patches), -1).astype(np.float32)
    mean: NDArray[np.float32] = patches.mean(axis=1, dtype=np.float32)
    return mean


def pooled_width(cell_count: int, width: int, cells: Cells) -> int:
    """Return the width of the tokens that `pool` returns."""
    return cell_count * width if cells == "concat" else width


@dataclass(frozen=True)
class MeanPooler:
    """Mean pooling behind the interface of every pooler (`pjepa.pooler.models.Pooler`)."""

    facts: PoolerFacts
    cells: Cells

    @classmethod
    def read(cls, folder: Path, facts: PoolerFacts) -> MeanPooler:
        return cls(facts, read_object(folder / CONFIG, "cells")["cells"])

    def tokens(
        self,
        patches: NDArray[np.floating],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
        cuts: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Return tokens [steps, D]; neither segments nor labels nor cuts matter."""
        return pool(patches, self.cells)

    def window_tokens(self, patches: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return tokens [n, D] of any number of steps."""
        return pool(patches, self.cells)
