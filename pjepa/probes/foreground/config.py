"""`probe.foreground`: the release's probe of steps and activity."""

from __future__ import annotations

from pjepa.probes.base.config import TrainedConfig


class ForegroundConfig(TrainedConfig):
    """The release's EgoProceL probe: which step, and whether there is one (two affine heads)."""


CONFIG = ForegroundConfig
