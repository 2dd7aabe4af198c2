"""`select`: which snapshot becomes the encoder."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pjepa.core.machine import MachineSection


class SelectConfig(MachineSection):
    """Which snapshot is kept: `last` needs no labels, unlike the paper, which keeps the one whose
    probe is best on validation (`val`).

    `holdout` scores on held-out train groups, which neither pretraining nor the probe has seen.
    """

    purpose: ClassVar[str] = "Which snapshot becomes the encoder."
    tuned: ClassVar[tuple[str, ...]] = ("by", "metric")

    by: Literal["last", "holdout", "val"] = "last"
    metric: Literal["acc", "combined"] = "acc"  # combined: the release's sum of six scores


# `curve`: the linear probe over the epochs of pretraining.


class CurveConfig(MachineSection):
    """A curve for information only: `select.by` does the choosing.

    At most `snapshots` are scored, evenly spaced with the last (0: no curve), with a probe on
    at most `takes` train takes, scored on at most as many takes of held-out train groups.
    """

    purpose: ClassVar[str] = "The linear probe over the epochs of pretraining."
    tuned: ClassVar[tuple[str, ...]] = ("snapshots", "takes")

    snapshots: int = Field(10, ge=0)
    takes: int = Field(60, ge=1)
