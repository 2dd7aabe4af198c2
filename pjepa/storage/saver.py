"""Resume states on a schedule: often, but never so often that it slows the work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pjepa.storage.reading import open_tensors
from pjepa.storage.sealed import BEFORE, newest_intact, remove_sealed, sealed_file
from pjepa.storage.writing import write_json, write_tensors
from pjepa.ui.console import InputError, say

SAVE_SECONDS = 2.0  # at least this long between two resume states,
SAVE_SHARE = 0.05  # at most this share of the time spent on writing them,
SAVE_PACE = 5e6  # and so many bytes per second on average: one of 2 GB every 7 minutes


class Saver:
    """A file that holds `state()`, with the one before beside it, each with the hash of its
    content.
    """

    def __init__(self, path: Path | None, state: Callable[[], dict[str, Any]]) -> None:
        self.path, self.state = path, state
        self.written, self.cost, self.size = time.monotonic(), 0.0, 0

    def save_when_due(self, now: bool = False) -> None:
        """Save if the last state is old enough for its size, or `now`; never without a path."""
        if self.path is None or not (now or self.is_due()):
            return
        started = time.monotonic()
        with sealed_file(self.path, keep_before=True) as partial:
            torch.save(self.state(), partial)
        self.written, self.size = time.monotonic(), self.path.stat().st_size
        self.cost = self.written - started

    def is_due(self) -> bool:
        """Return whether the last state is old enough for its size."""
        least = max(SAVE_SECONDS, self.cost / SAVE_SHARE, self.size / SAVE_PACE)
        return time.monotonic() - self.written > least

    def saved(self, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """Return the last saved state, if any; a damaged one is replaced by the one before."""
        path = None if self.path is None else newest_intact(self.path)
        if path is None:
            return None
        if path != self.path:
            say(f"{path}: resuming from this state, the last good one")
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
        return state


# The state of a stream on disk: tensors and a description, so that a restart loses nothing.

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
    with sealed_file(folder / TENSORS, keep_before=True) as partial:
        write_tensors(partial, state, json.dumps(about, sort_keys=True))
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
    with open_tensors(file) as stored:
        try:
            about = json.loads((stored.metadata() or {})["about"])
        except (KeyError, ValueError):
            raise InputError(f"{file}: not a stream's state; start afresh") from None
        return {name: stored.get_tensor(name) for name in stored.keys()}, about  # noqa: SIM118
