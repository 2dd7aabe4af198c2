"""From the patches of one step to one token, with nothing to train (paper Sec. 3.1, mean-pool)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pjepa.pooling.facts import CONFIG, PoolerFacts
from pjepa.work import read_json

Cells = Literal["average", "concat"]


def pool(
    patches: NDArray[np.floating], cells: Cells = "average"
) -> NDArray[np.float32]:  # [steps, cells, width] -> [steps, width out]
    """Tokens of every step: the mean over cells [steps, width], or cells side by side.

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
    """Width of the tokens `pool` gives."""
    return cell_count * width if cells == "concat" else width


@dataclass(frozen=True)
class MeanPooler:
    """Mean pooling behind the interface of every pooler (`pjepa.pooling.Pooler`)."""

    facts: PoolerFacts
    cells: Cells

    @classmethod
    def read(cls, folder: Path, facts: PoolerFacts) -> MeanPooler:
        return cls(facts, read_json(folder / CONFIG)["cells"])

    def tokens(
        self,
        patches: NDArray[np.floating],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
    ) -> NDArray[np.float32]:
        """Tokens [steps, D]; neither segments nor labels matter."""
        return pool(patches, self.cells)

    def window_tokens(self, patches: NDArray[np.floating]) -> NDArray[np.float32]:
        """Tokens [n, D] of any number of steps."""
        return pool(patches, self.cells)
