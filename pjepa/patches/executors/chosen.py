"""Which executor `machine.executor` names."""

from __future__ import annotations

from pjepa.patches.config import PatchesConfig
from pjepa.patches.extract import Executor


def chosen_executor(config: PatchesConfig) -> Executor:
    """Return the executor: local processes or a Ray cluster, with the same bytes."""
    if config.executor == "ray":
        from pjepa.patches.executors.ray import run_ray

        return run_ray
    from pjepa.patches.executors.local import run_local

    return run_local
