"""`probe.foreground`: the release's probe of steps and activity."""

from __future__ import annotations

from typing import ClassVar

from pjepa.probes.base.config import TrainedConfig


class ForegroundConfig(TrainedConfig):
    """The release's EgoProceL probe: which step, and whether there is one (two affine heads)."""

    purpose: ClassVar[str] = "the release's probe of steps and activity."


CONFIG = ForegroundConfig
