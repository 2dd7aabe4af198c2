"""`curve`: the linear probe over the epochs of pretraining."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pjepa.core.machine import Placed


class CurveConfig(Placed):
    """A curve for information only: `select.by` does the choosing.

    At most `snapshots` are scored, evenly spaced with the last (0: no curve), with a probe on
    at most `takes` train takes, scored on at most as many takes of held-out train groups.
    """

    tuned: ClassVar[tuple[str, ...]] = ("snapshots", "takes")

    snapshots: int = Field(10, ge=0)
    takes: int = Field(60, ge=1)
