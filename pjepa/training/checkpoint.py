"""Resume state of pretraining: everything the next step depends on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from pjepa.model.jepa import Jepa
from pjepa.training.saver import Saver


@dataclass
class Progress:
    """Where training stands; `history` is replayed into the log after a restart."""

    epoch: int = 0
    step: int = 0  # over the whole run
    done: int = 0  # steps of this epoch, and what they summed up
    loss: float = 0.0
    targets: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def resumed(path: Path, model: Jepa, optimizer: torch.optim.Optimizer) -> tuple[Progress, Saver]:
    """Where a saved state stands after restoring it, or the beginning; and what saves it."""
    progress = Progress()
    saver = Saver(
        path,
        lambda: {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": asdict(progress),
        },
    )
    state = saver.saved()
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        vars(progress).update(state["progress"])
    return progress, saver
