"""`probe.ltcontext`: LTContext and its training."""

from __future__ import annotations

from pjepa.probes.base.config import TrainedConfig
from pjepa.probes.shared.long_term.config import LTContextConfig


class LTContextProbeConfig(LTContextConfig, TrainedConfig):
    """LTContext with its training."""


CONFIG = LTContextProbeConfig
