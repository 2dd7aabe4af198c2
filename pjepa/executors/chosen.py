"""Which executor `patches.executor` names."""

from __future__ import annotations

from pjepa.backbones.extract import Executor
from pjepa.config.patches import PatchesConfig


def chosen_executor(config: PatchesConfig) -> Executor:
    """Local processes or a Ray cluster: one contract, the same bytes."""
    if config.executor == "ray":
        from pjepa.executors.ray import run_ray

        return run_ray
    from pjepa.executors.local import run_local

    return run_local
