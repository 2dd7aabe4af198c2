"""Training of a probe: epoch -> choice -> state, each short; resumed to the same bytes.

All randomness is keyed: the order of takes by (seed, epoch), dropout by (seed, epoch, take), so a
restart, or another take in the data, changes no draw of the others.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjepa.config.trained import TrainedConfig
from pjepa.errors import InputError
from pjepa.metrics.segmentation import combined_score, scores, take_statistics
from pjepa.probes.temporal import TemporalProbe
from pjepa.training.saver import Saver
from pjepa.training.schedule import cosine_rate, learning_rate

ORDER, STEP = 0, 1  # what a random stream is for
Tick = Callable[[int, str, bool], None]  # epochs done now, a note, whether an earlier run did them


@dataclass(frozen=True)
class ProbeTake:
    """One take in memory at the stream's own precision."""

    take_id: str
    features: NDArray[Any]  # [T, D] float16 or float32
    segments: NDArray[np.int64]  # [T] 0, 1, 2 ... along the take
    labels: NDArray[np.int64]  # [T], -1 unknown

    def tensors(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scaled features, segments and labels on the device of `mean`."""
        x = torch.from_numpy(self.features).to(mean.device).float()
        place, labels = (torch.from_numpy(v).to(mean.device) for v in (self.segments, self.labels))
        return (x - mean) / std, place, labels


@dataclass
class State:
    """Everything the next epoch depends on besides the module and its optimiser."""

    epoch: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf
    best: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Trainer:
    """One training: the module, what it is shown, and what the best epoch is chosen on."""

    module: TemporalProbe
    takes: Sequence[ProbeTake]
    choose: Sequence[ProbeTake]  # nobody: the last epoch is kept
    mean: Tensor
    std: Tensor
    config: TrainedConfig
    background: int | None
    seed: int

    def run(self, path: Path | None, tick: Tick) -> State:
        """Return the finished state after loading the best epoch into the module.

        Continues from `path`, where a killed run left its state; without one, nothing is kept.
        """
        optimizer = self.optimizer()
        state, saver = self.resumed(path, optimizer)
        tick(state.epoch, "", True)
        while state.epoch < self.config.epochs:
            self.epoch(optimizer, state)
            saver.save_when_due(now=state.epoch == self.config.epochs)
            tick(1, self.note(state), False)
        self.module.load_state_dict(state.best)
        self.module.eval()
        return state

    def resumed(self, path: Path | None, optimizer: torch.optim.Optimizer) -> tuple[State, Saver]:
        """Return where a saved training stands after restoring it, and what saves it."""
        state = State()
        parts: dict[str, Any] = {"module": self.module, "optimizer": optimizer}
        saver = Saver(
            path, lambda: vars(state) | {name: part.state_dict() for name, part in parts.items()}
        )
        saved = saver.saved(next(self.module.parameters()).device)
        if saved is not None:
            for name, part in parts.items():
                part.load_state_dict(saved.pop(name))
            vars(state).update(saved)
        return state, saver

    def optimizer(self) -> torch.optim.Optimizer:
        """Return the configured optimiser over all parameters."""
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[self.config.optimizer]
        config = self.config
        return kind(self.module.parameters(), lr=config.lr, weight_decay=config.weight_decay)

    def epoch(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Pass once over all takes, then keep the module if it does best so far."""
        for group in optimizer.param_groups:
            group["lr"] = epoch_rate(self.config, state.epoch)
        order = np.random.default_rng([self.seed, ORDER, state.epoch]).permutation(len(self.takes))
        size, losses = self.config.batch_takes, []
        self.module.train()
        for first in range(0, len(order), size):
            batch = [self.takes[place] for place in order[first : first + size]]
            losses.append(self.step(optimizer, batch, state.epoch))
        self.module.eval()
        state.epoch += 1
        score = self.score() if self.choose else float(state.epoch)
        if score > state.best_score:
            state.best_epoch, state.best_score = state.epoch, score
            state.best = {k: v.detach().clone() for k, v in self.module.state_dict().items()}
        entry = {"loss": float(np.mean(losses))}
        state.history.append({**entry, "score": score} if self.choose else entry)

    def step(
        self, optimizer: torch.optim.Optimizer, batch: Sequence[ProbeTake], epoch: int
    ) -> float:
        """Take one optimiser step on the mean loss of a few takes; return that loss."""
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for take in batch:
            torch.manual_seed(take_seed(self.seed, epoch, take.take_id))
            features, segments, labels = take.tensors(self.mean, self.std)
            loss = self.module.loss(self.module(features, segments), labels) / len(batch)
            if not torch.isfinite(loss):
                raise InputError(
                    f"take {take.take_id}: the probe's loss is not finite in epoch {epoch + 1}; "
                    "lower its lr, or set probe.common.input_norm=standardize"
                )
            loss.backward()
            total += float(loss.detach())
        if self.config.clip_grad:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip_grad)
        optimizer.step()
        return total

    @torch.no_grad()
    def score(self) -> float:
        """Return the combined score on the takes that choices are made on."""
        found = []
        for take in self.choose:
            features, segments, _ = take.tensors(self.mean, self.std)
            guess = self.module.predict(features, segments).argmax(1).cpu().numpy()
            found.append(take_statistics(take.labels, guess, self.background))
        return combined_score({name: float(value) for name, value in scores(found).items()})

    def note(self, state: State) -> str:
        """Return what the progress line shows beside the epoch."""
        text = f"loss {state.history[-1]['loss']:.3f}"
        if self.choose:
            text += f", best {state.best_score:.1f} at epoch {state.best_epoch}"
        return text


def epoch_rate(config: TrainedConfig, epoch: int) -> float:
    """Return the learning rate of an epoch, counted from 0."""
    if config.schedule == "step":
        return learning_rate(config.lr, epoch, 0, config.milestones, config.gamma, 0)
    length = max(config.epochs - config.constant_epochs, 1)
    done = max(epoch - config.constant_epochs, 0)
    return cosine_rate(config.lr, config.lr_min, done, length)


def take_seed(seed: int, epoch: int, take_id: str) -> int:
    """Return the seed of everything random while one take is shown in one epoch."""
    key = [seed, STEP, epoch, zlib.crc32(take_id.encode())]
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
