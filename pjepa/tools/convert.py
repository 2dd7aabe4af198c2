"""`pjepa convert`: released weights in our own files.

The encoder of an official V-JEPA checkpoint alone, as safetensors; and the heads that the authors
published, as probes, in three layouts: `fc.*` (all classes), `classifier.*` inside a bundle that
names its classes (surgical phases), and `foreground_fc.*` with `activity_fc.*`. Nothing but tensors
and plain values is unpickled.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pjepa.core.tables import Classes
from pjepa.patches.checkpoint import (
    encoder_state,
    named_variant,
    read_checkpoint,
    tensors_id,
    weights_file,
    write_port,
)
from pjepa.probes.base.trained import Task, TrainedProbe
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.foreground.probe import KIND
from pjepa.probes.linear.probe import LinearProbe
from pjepa.storage.download import sha256_shown
from pjepa.storage.hub import download_folder
from pjepa.storage.reading import read_torch
from pjepa.ui.console import InputError

AFFINE = ("fc", "classifier")
FACTS = ("phase_class_names", "source_dataset", "source_protocol", "feature_source")


def converted_encoder(checkpoint: str, variant_name: str, out: Path | None) -> str:
    """Write the encoder with metadata that names the variant, read it back, and say what it is."""
    source = weights_file(variant_name, checkpoint)
    target = out or download_folder() / f"{variant_name}.safetensors"
    if target.suffix != ".safetensors":
        raise InputError(f"{target}: a port is a .safetensors file; give --out such a name")
    if target.exists() and target.samefile(source):
        raise InputError(f"{source}: is such a port already; give the official .pt")
    state = encoder_state(variant_name, source)
    variant = named_variant(variant_name)
    identity = tensors_id(state)
    metadata = {
        "variant": variant_name,
        "heads": variant.heads,
        "levels": list(variant.levels),
        "source": source.name,
        "source_sha256": sha256_shown(source),
        "weights_id": identity,
    }
    write_port(target, state, metadata)
    written = read_checkpoint(target)
    if any(not torch.equal(written[name], state[name]) for name in state):
        target.unlink()
        raise InputError(f"{target}: does not read back as it was written; check the disk")
    sizes = [path.stat().st_size / 1e9 for path in (target, source)]
    return f"{target}: {sizes[0]:.2f} GB of {sizes[1]:.2f} GB\nweights id {identity}"


def released_head(path: Path, background: int = 0) -> LinearProbe | TrainedProbe:
    """Return the probe in a released `.pt` file; `background` is the class its steps leave out.

    Features are used as they are: the release neither centres nor scales them.
    """
    bundle = read_torch(path)
    state = bundle.get("model_state_dict", bundle)
    details = {"fit": "released", "file": path.name}
    details |= {name: bundle[name] for name in FACTS if name in bundle}
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
