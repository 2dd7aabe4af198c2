"""A resumable training loop that keeps the best epoch, for the pooler and trained probes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import unwrap
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from pjepa.storage.saver import Saver

# Curves for DVC: one dvclive step per epoch, replayed after a restart.

Log = Callable[[dict[str, float]], None]  # one epoch's numbers by name


@contextmanager
def live_log(folder: Path) -> Iterator[Log]:
    """Yield a function that logs one epoch's entry under `folder`."""
    from dvclive import Live

    with Live(str(folder), dvcyaml=None, save_dvc_exp=False, report=None) as live:

        def log(entry: dict[str, float]) -> None:
            for name, value in entry.items():
                live.log_metric(name, value)
            live.next_step()

        yield log


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
    resumable: dict[str, Any] = {"model": training.model, "optimizer": training.optimizer}
    saver = Saver(
        path, lambda: vars(state) | {name: value.state_dict() for name, value in resumable.items()}
    )
    saved = saver.saved(next(training.model.parameters()).device)
    if saved is not None:
        for name, value in resumable.items():
            value.load_state_dict(saved.pop(name))
        vars(state).update(saved)
    tick(state.epoch, "", True)
    for entry in state.history:
        log(entry)
    while not training.finished(state):
        training.epoch(state, saver)
        saver.save_when_due(now=training.finished(state))
        tick(1, training.note(state), False)
        log(state.history[-1])
    training.model.load_state_dict(state.best)
    training.model.eval()
    return state


# Learning rates: constant with step decay (the paper's), or a cosine.


def learning_rate(
    lr: float, epoch: int, step: int, milestones: Sequence[int], gamma: float, warmup_steps: int
) -> float:
    """Return the rate for `step` (counted over the whole run) in `epoch`, both from 0."""
    decayed = lr * gamma ** sum(epoch >= milestone for milestone in milestones)
    return decayed * min(1.0, (step + 1) / warmup_steps) if warmup_steps else decayed


def cosine_rate(lr: float, lr_min: float, done: int, length: int) -> float:
    """Return the rate after `done` of `length` steps or epochs, from `lr` down to `lr_min`."""
    turn = math.pi * done / length
    return lr_min + (lr - lr_min) * (1 + math.cos(turn)) / 2


# Mean and spread of every channel, for standardised inputs.

CONSTANT = 1e-6  # a channel that varies less than this, relative to its mean, is left unscaled


def channel_scale(tables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation per channel over all rows of tables [N, D].

    1 for channels that do not vary.
    """
    count = sum(len(table) for table in tables)
    mean = torch.stack([table.sum(0, dtype=torch.float64) for table in tables]).sum(0) / count
    square = torch.zeros_like(mean)
    for table in tables:
        square += (table.double() - mean).square_().sum(0)
    std = (square / count).sqrt()
    std = torch.where(std <= CONSTANT * mean.abs() + 1e-12, torch.ones_like(std), std)
    return mean.float(), std.float()


# torch's Adam and AdamW without torch's compiler.

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)
MARKED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def unmarked(kind: type[AnyOptimizer]) -> type[AnyOptimizer]:
    """Return an optimiser that never imports the compiler."""
    methods = {name: unwrap(getattr(kind, name)) for name in MARKED}
    step = torch.no_grad()(unwrap(kind.step))  # a mark of `step` turns gradients off
    return type(kind.__name__, (kind,), {**methods, "step": step})


Adam, AdamW = unmarked(torch.optim.Adam), unmarked(torch.optim.AdamW)
