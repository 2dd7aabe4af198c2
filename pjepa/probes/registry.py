"""The trained probes by name: which section of params they read, and how they are built."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pjepa.config.trained import (
    AttentiveConfig,
    FactProbeConfig,
    ForegroundConfig,
    LTCausalProbeConfig,
    LTContextProbeConfig,
    TrainedConfig,
)
from pjepa.errors import InputError
from pjepa.probes.attentive import AttentiveProbe
from pjepa.probes.foreground import ForegroundProbe
from pjepa.probes.linear import LinearProbe
from pjepa.probes.published import FactProbe, LTCausalProbe, LTContextProbe
from pjepa.probes.temporal import Task, TemporalProbe, TrainedProbe
from pjepa.work import read_json

Build = Callable[[Any, Task], TemporalProbe]
Fit = Callable[[Any, Task], Any]  # the section a module is built from


@dataclass(frozen=True)
class ProbeKind:
    """A section of params and the module it describes; `fit` adapts the section to a task."""

    config: type[TrainedConfig]
    build: Build
    fit: Fit = lambda config, task: config


KINDS: dict[str, ProbeKind] = {
    "foreground": ProbeKind(ForegroundConfig, ForegroundProbe),
    "attentive": ProbeKind(AttentiveConfig, AttentiveProbe),
    "ltcontext": ProbeKind(LTContextProbeConfig, LTContextProbe),
    "ltcausal": ProbeKind(LTCausalProbeConfig, LTCausalProbe),
    "fact": ProbeKind(
        FactProbeConfig,
        FactProbe,
        fit=lambda config, task: config.with_tokens_for(task.most_segments),
    ),
}


def new_probe(kind: str, config: TrainedConfig, task: Task, seed: int) -> TrainedProbe:
    """Return an untrained probe; the seed fixes its first weights."""
    fitted = KINDS[kind].fit(config, task)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = KINDS[kind].build(fitted, task)
    unscaled = torch.zeros(task.width), torch.ones(task.width)
    return TrainedProbe(kind, task, fitted.model_dump(mode="json"), module, *unscaled)


def load_probe(folder: Path) -> LinearProbe | TrainedProbe:
    """Return the probe of a cell's `model/`: `predict(features, segments)` gives [T, C]."""
    config = read_json(folder / "config.json")
    kind = config.get("kind")
    if kind == "linear":
        return LinearProbe.load(folder)
    if kind not in KINDS:
        known = ", ".join(["linear", *KINDS])
        raise InputError(f"{folder}: unknown kind of probe {kind!r}; known: {known}")
    task = Task(**{name: config[name] for name in Task.__dataclass_fields__})
    probe = new_probe(kind, KINDS[kind].config.model_validate(config["settings"]), task, 0)
    tensors = load_file(folder / "model.safetensors")
    mean, std = tensors.pop("mean"), tensors.pop("std")
    state = {name.removeprefix("module."): value for name, value in tensors.items()}
    try:
        probe.module.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{folder}: model.safetensors does not fit config.json ({reason})"
        ) from None
    return TrainedProbe(kind, task, probe.settings, probe.module, mean, std, config["fit"])
