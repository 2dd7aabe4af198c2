"""The heads that the authors published, as probes.

Three layouts: `fc.*` (all classes), `classifier.*` inside a bundle that names its classes (surgical
phases), and `foreground_fc.*` with `activity_fc.*`. Nothing but tensors and plain values is
unpickled.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pjepa.core.tables import Classes
from pjepa.probes.base.trained import Task, TrainedProbe
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.foreground.probe import KIND
from pjepa.probes.linear.probe import LinearProbe
from pjepa.storage.reading import read_torch
from pjepa.ui.console import InputError

AFFINE = ("fc", "classifier")
TOLD = ("phase_class_names", "source_dataset", "source_protocol", "feature_source")


def released_head(path: Path, background: int = 0) -> LinearProbe | TrainedProbe:
    """Return the probe in a released `.pt` file; `background` is the class its steps leave out.

    Features are used as they are: the release neither centres nor scales them.
    """
    bundle = read_torch(path)
    state = bundle.get("model_state_dict", bundle)
    details = {"fit": "released", "file": path.name}
    details |= {name: bundle[name] for name in TOLD if name in bundle}
    if {"foreground_fc.weight", "activity_fc.weight"} <= state.keys():
        return _foreground(path, state, background, details)
    for name in AFFINE:
        if f"{name}.weight" in state:
            weight, bias = _affine(path, state, name)
            width = weight.shape[1]
            return LinearProbe(weight, bias, torch.zeros(width), torch.ones(width), details)
    known = ", ".join(f"{name}.weight" for name in (*AFFINE, "foreground_fc"))
    raise InputError(f"{path}: not a released head: has none of {known}")


def head_classes(probe: LinearProbe | TrainedProbe) -> Classes:
    """Return the class names that the release gives; numbers where it names none."""
    task = probe.task if isinstance(probe, TrainedProbe) else Task(*probe.weight.shape[::-1])
    names = probe.details.get("phase_class_names") or [f"class {n}" for n in range(task.classes)]
    return Classes(tuple(map(str, names)), task.background)


def _foreground(
    path: Path, state: dict[str, Tensor], background: int, details: dict[str, Any]
) -> TrainedProbe:
    steps, _ = _affine(path, state, "foreground_fc")
    activity, _ = _affine(path, state, "activity_fc")
    if len(activity) != 2 or activity.shape[1] != steps.shape[1]:
        raise InputError(f"{path}: activity_fc is {tuple(activity.shape)}, expected two rows of "
                         f"{steps.shape[1]}")  # fmt: skip
    task = Task(steps.shape[1], len(steps) + 1, background)
    probe = KIND.new(ForegroundConfig(), task, seed=0)
    probe.module.load_state_dict({name: state[name].float() for name in probe.module.state_dict()})
    probe.details.update(details)
    return probe


def _affine(path: Path, state: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Return weight [C, D] and bias [C] of one affine map."""
    weight, bias = state.get(f"{name}.weight"), state.get(f"{name}.bias")
    if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise InputError(f"{path}: {name} has no weight [C, D] with a bias [C]")
    return weight.float(), bias.float()
