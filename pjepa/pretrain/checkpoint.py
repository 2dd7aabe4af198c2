"""Resume state of pretraining: everything the next step depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pjepa.core.files import content_sha256
from pjepa.nn.saver import Saver
from pjepa.pretrain.objective import Counts, Jepa
from pjepa.ui.progress import say


@dataclass
class Progress:
    """Where training stands; `history` is replayed into the log after a restart."""

    epoch: int = 0
    step: int = 0  # over the whole run
    done: int = 0  # steps of this epoch, and what they summed up
    sums: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))  # losses
    targets: int = 0
    pairs: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    snapshots: dict[str, str] = field(default_factory=dict)  # name: content hash

    def add(self, losses: Tensor, counts: Counts) -> None:
        """Add one step with its summed losses [2]: Eq. 2 and the neighbour term."""
        self.sums = self.sums.to(losses.device) + losses
        self.targets, self.pairs = self.targets + counts.targets, self.pairs + counts.pairs
        self.step, self.done = self.step + 1, self.done + 1

    def means(self) -> tuple[float, float]:
        """Return the epoch's losses so far; waits for the device to finish its steps."""
        loss, neighbour_loss = self.sums.tolist()
        return loss / self.targets, neighbour_loss / max(1, self.pairs)

    def end_epoch(self, entry: dict[str, float]) -> None:
        """Go on to the next epoch with this one's log entry."""
        self.history.append(entry)
        self.epoch, self.done = self.epoch + 1, 0
        self.sums, self.targets, self.pairs = torch.zeros_like(self.sums), 0, 0


def resumed(
    path: Path,
    snapshots: Path,
    model: Jepa,
    optimizer: torch.optim.Optimizer,
    check: Callable[[], None],
) -> tuple[Progress, Saver]:
    """Return the restored progress, or the beginning, and the saver.

    `check` raises if the state must not be kept. A lost or damaged snapshot cannot be made from a
    later state, so training starts over.
    """
    progress = Progress()

    def state() -> dict[str, Any]:
        check()
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": asdict(progress),
        }

    saver = Saver(path, state)
    saved = saver.saved()
    if saved is not None and (bad := damaged_snapshot(snapshots, saved["progress"]["snapshots"])):
        say(f"pretrain: {bad} of the interrupted run is lost or damaged; starting over")
        saved = None
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        vars(progress).update(saved["progress"])
    return progress, saver


def damaged_snapshot(folder: Path, expected: dict[str, str]) -> str | None:
    """Return the first snapshot that is not what the state says, if there is one."""
    for name, digest in expected.items():
        if not (folder / name).is_dir() or content_sha256(folder / name) != digest:
            return f"snapshot {name}"
    return None
