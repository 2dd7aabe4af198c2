"""`select`: which snapshot becomes the encoder."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pjepa.core.machine import Placed


class SelectConfig(Placed):
    """Which snapshot is kept: `last` needs no labels, unlike the paper, which keeps the one whose
    probe is best on validation (`val`).

    `holdout` scores on held-out train groups, which neither pretraining nor the probe has seen.
    """

    tuned: ClassVar[tuple[str, ...]] = ("by", "metric")

    by: Literal["last", "holdout", "val"] = "last"
    metric: Literal["acc", "combined"] = "acc"  # combined: the release's sum of six scores
    # strengths tried for each snapshot's probe; the best on the hold-out counts
    l2: tuple[Annotated[float, Field(gt=0)], ...] = Field((1e-1, 1e-2, 1e-3, 1e-4), min_length=1)
