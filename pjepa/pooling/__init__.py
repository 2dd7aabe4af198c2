"""From the patches of a step to its token (paper Sec. 3.1): one interface for every pooler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.pooling.facts import PoolerFacts, read_facts


class Pooler(Protocol):
    """What `tokens` and live use know of a pooler."""

    @property
    def facts(self) -> PoolerFacts: ...

    def tokens(
        self,
        patches: NDArray[Any],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
    ) -> NDArray[np.float32]:
        """Tokens [steps * per_step, D] of a take's patches [steps, cells, width].

        `boundaries` [S, 2] are its segments in seconds; `take_id` names it, so that a train take
        gets the pooler that did not see its labels.
        """
        ...

    def window_tokens(self, patches: NDArray[Any]) -> NDArray[np.float32]:
        """Tokens [n * per_step, D] of a window [n, cells, width], at most `facts.window` steps."""
        ...


def load_pooler(folder: Path | str, device: str = "cpu", threads: int | None = None) -> Pooler:
    """The pooler that stage `pooler` wrote to a folder."""
    facts = read_facts(Path(folder))
    if facts.kind == "mean":
        from pjepa.pooling.mean import MeanPooler

        return MeanPooler.read(Path(folder), facts)
    from pjepa.pooling.stored import StoredPooler

    return StoredPooler.read(Path(folder), facts, device, threads)
