"""The state of a stream on disk: tensors and a description, so that a restart loses nothing.

Every part with a memory has `state()`, a flat dict of tensors, and `restore(tensors)`. A folder
holds `state.safetensors` and `state.json`; both are replaced together, so that a process killed
while saving leaves the state before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pjepa.core.digests import BEFORE, newest_intact, remove_sealed, sealed_file
from pjepa.core.files import write_json
from pjepa.ui.errors import InputError

TENSORS, ABOUT = "state.safetensors", "state.json"
State = dict[str, Tensor]


def under(name: str, state: Mapping[str, Tensor]) -> State:
    """Return a part's tensors with `name.` before theirs."""
    return {f"{name}.{key}": value for key, value in state.items()}


def part(name: str, state: Mapping[str, Tensor]) -> State:
    """Return the tensors of the part `name`, as that part named them."""
    start = f"{name}."
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


def numbers(*values: float) -> Tensor:
    """Return numbers as a tensor; float64 holds every count below 2^53 exactly."""
    return torch.tensor(values, dtype=torch.float64)


def save_state(folder: Path, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write the state; `about` (JSON values) says what it belongs to.

    It is in the tensor file itself, which is replaced in one step; state.json repeats it for
    people. The state before is kept for the case that this one is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    text = json.dumps(about, sort_keys=True)
    with sealed_file(folder / TENSORS, keep_before=True) as partial:
        save_file(tensors, partial, metadata={"about": text})
    write_json(folder / ABOUT, dict(about))


def has_state(folder: Path) -> bool:
    """Return whether a state was saved there that is not put aside."""
    return any((folder / f"{TENSORS}{kept}").exists() for kept in ("", BEFORE))


def remove_state(folder: Path) -> None:
    """Remove the saved state; the next run starts over."""
    for kept in (BEFORE, ""):
        remove_sealed(folder / f"{TENSORS}{kept}")


def load_state(folder: Path) -> tuple[State, dict[str, Any]]:
    """Return the tensors and the description of the last good state."""
    if not has_state(folder):
        raise InputError(f"{folder / TENSORS}: no saved state; check the folder")
    file = newest_intact(folder / TENSORS)
    if file is None:
        raise InputError(f"{folder}: no good state is left; run again to start afresh")
    try:
        with safe_open(file, framework="pt") as found:
            about = json.loads((found.metadata() or {})["about"])
            return {name: found.get_tensor(name) for name in found.keys()}, about  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise InputError(f"{file}: not a stream's state ({error}); start afresh") from None
