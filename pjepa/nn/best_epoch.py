"""A resumable training loop that keeps the best epoch, for the pooler and trained probes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from pjepa.nn.log import Log
from pjepa.nn.saver import Saver

Tick = Callable[[int, str, bool], None]  # epochs done now, a note, whether an earlier run did them


def no_log(entry: dict[str, float]) -> None:
    """Log nothing, for training whose history is enough."""


@dataclass
class Epochs:
    """Everything the next epoch depends on besides the model and its optimiser."""

    epoch: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf
    best: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)

    def close(self, model: nn.Module, score: float | None, entry: dict[str, float]) -> None:
        """Count an epoch and keep the model if it scores best; None: the newest is the best."""
        self.epoch += 1
        score = float(self.epoch) if score is None else score
        if score > self.best_score:
            self.best_epoch, self.best_score = self.epoch, score
            self.best = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.history.append(entry)


EpochState = TypeVar("EpochState", bound=Epochs)
Shown = TypeVar("Shown", bound=Epochs, contravariant=True)


class Training(Protocol[Shown]):
    """What differs between trainings; `epoch` may save in between."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def finished(self, state: Shown) -> bool: ...

    def epoch(self, state: Shown, saver: Saver) -> None: ...

    def note(self, state: Shown) -> str: ...


def train_to_best(
    training: Training[EpochState],
    state: EpochState,
    path: Path | None,
    tick: Tick,
    log: Log = no_log,
) -> EpochState:
    """Return the finished state, after loading the best epoch into the model.

    Resumes from `path` if an interrupted run left its state there; without a path, nothing is
    kept. `log` is given the entry of every epoch, those of the interrupted run again.
    """
    saver = _resumed(training, state, path)
    tick(state.epoch, "", True)
    for entry in state.history:
        log(entry)
    with saver:
        while not training.finished(state):
            training.epoch(state, saver)
            saver.save_when_due(now=training.finished(state))
            tick(1, training.note(state), False)
            log(state.history[-1])
    training.model.load_state_dict(state.best)
    training.model.eval()
    return state


def _resumed(training: Training[EpochState], state: EpochState, path: Path | None) -> Saver:
    """Restore what is saved and return the saver."""
    parts: dict[str, Any] = {"model": training.model, "optimizer": training.optimizer}
    saver = Saver(
        path, lambda: vars(state) | {name: part.state_dict() for name, part in parts.items()}
    )
    saved = saver.saved(next(training.model.parameters()).device)
    if saved is not None:
        for name, part in parts.items():
            part.load_state_dict(saved.pop(name))
        vars(state).update(saved)
    return saver
