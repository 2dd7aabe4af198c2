"""From the patches of one step to one token, with nothing to train (paper Sec. 3.1, mean-pool)."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
