"""The trained probes, untrained: what tests build by name."""

from importlib import import_module
from typing import Any

from pjepa.probes.base.trained import Task, TrainedKind, TrainedProbe
from pjepa.report.config import PROBES

KINDS: dict[str, TrainedKind] = {
    name: import_module(f"pjepa.probes.{name}.probe").KIND for name in PROBES if name != "linear"
}


def new_probe(kind: str, config: Any, task: Task, seed: int) -> TrainedProbe:
    return KINDS[kind].new(config, task, seed)
