"""From the patches of a step to its token (paper Sec. 3.1): one interface for every pooler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.pooler.models.facts import PoolerFacts, read_facts


class Pooler(Protocol):
    """The interface of a pooler that `tokens` and live use rely on."""

    @property
    def facts(self) -> PoolerFacts: ...

    def tokens(
        self,
        patches: NDArray[Any],
        boundaries: NDArray[np.float64] | None = None,
        take_id: str | None = None,
        cuts: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Return tokens [steps * per_step, D] of a take's patches [steps, cells, width].

        `boundaries` [S, 2] are its segments in seconds; `take_id` names it, so that a train take
        gets the pooler that did not see its labels. `cuts` are steps that begin a new recording.
        """
        ...

    def window_tokens(self, patches: NDArray[Any]) -> NDArray[np.float32]:
        """Return tokens [n * per_step, D] of one window [n, cells, width].

        A window has at most `facts.window` steps.
        """
        ...


def load_pooler(folder: Path | str, device: str = "cpu", threads: int | None = None) -> Pooler:
    """Return the pooler that stage `pooler` wrote to a folder."""
    facts = read_facts(Path(folder))
    if facts.kind == "mean":
        from pjepa.pooler.models.mean import MeanPooler

        return MeanPooler.read(Path(folder), facts)
    from pjepa.pooler.models.stored import StoredPooler

    return StoredPooler.read(Path(folder), facts, device, threads)
