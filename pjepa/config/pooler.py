"""`pooler`: from the patches of one step to one token (paper Sec. 3.1)."""

from __future__ import annotations

from typing import Literal

from pjepa.config.section import Section


class PoolerConfig(Section):
    """`mean` averages over space (the paper's mean-pool); `concat` keeps the stored cells apart."""

    kind: Literal["mean"] = "mean"
    cells: Literal["average", "concat"] = "average"
