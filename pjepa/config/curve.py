"""`curve`: the linear probe over the epochs of pretraining."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pjepa.config.section import Section


class CurveConfig(Section):
    """A picture for people: nothing is chosen by it (`select.by` chooses).

    At most `snapshots` are scored, evenly and the last among them (0: no curve), with a probe on
    at most `takes` train takes, scored on at most as many takes of held-out train groups.
    """

    snapshots: int = Field(10, ge=0)
    takes: int = Field(60, ge=1)
    # strengths tried for each snapshot's probe; the best on the hold-out counts
    l2: tuple[Annotated[float, Field(gt=0)], ...] = Field((1e-1, 1e-2, 1e-3, 1e-4), min_length=1)
    threads: int = Field(2, ge=1)
    device: str = "cpu"
