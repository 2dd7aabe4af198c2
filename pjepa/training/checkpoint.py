"""Resume state: everything the next epoch depends on, written whole after an epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pjepa.model.jepa import Jepa
from pjepa.work import whole_file


@dataclass
class Progress:
    """Where training stands; `history` is replayed into the log after a restart."""

    epoch: int = 0
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def save_state(
    path: Path, model: Jepa, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Writes model, teacher, optimiser and progress; a kill leaves the previous state intact."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": progress.epoch,
        "step": progress.step,
        "history": progress.history,
    }
    with whole_file(path) as partial:
        torch.save(state, partial)


def load_state(path: Path, model: Jepa, optimizer: torch.optim.Optimizer) -> Progress:
    """Restores a saved state; without one, the beginning."""
    if not path.exists():
        return Progress()
    state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(state["epoch"], state["step"], state["history"])
