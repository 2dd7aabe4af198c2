"""`select`: which snapshot becomes the encoder."""

from __future__ import annotations

from typing import ClassVar, Literal

from pjepa.core.machine import Placed


class SelectConfig(Placed):
    """Which snapshot is kept: `last` needs no labels, unlike the paper, which keeps the one whose
    probe is best on validation (`val`).

    `holdout` scores on held-out train groups, which neither pretraining nor the probe has seen.
    """

    tuned: ClassVar[tuple[str, ...]] = ("by", "metric")

    by: Literal["last", "holdout", "val"] = "last"
    metric: Literal["acc", "combined"] = "acc"  # combined: the release's sum of six scores
