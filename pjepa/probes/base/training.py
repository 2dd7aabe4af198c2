"""Training of a probe: epoch -> choice -> state, each short; resumed to the same bytes.

All randomness is keyed: the order of takes by (seed, epoch), dropout by (seed, epoch, take), so a
restart, or another take in the data, changes no draw of the others.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjepa.metrics.segmentation import combined_score, scores, take_statistics
from pjepa.nn.best_epoch import Epochs, Tick, train_to_best
from pjepa.nn.optimizers import Adam, AdamW
from pjepa.nn.saver import Saver
from pjepa.nn.schedule import cosine_rate, learning_rate
from pjepa.probes.base.config import TrainedConfig
from pjepa.probes.base.temporal import TemporalProbe
from pjepa.ui.errors import InputError

ORDER, STEP = 0, 1  # what a random stream is for


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
class ProbeTrainer:
    """One training: the module, what it is shown, and what the best epoch is chosen on."""

    model: TemporalProbe
    takes: Sequence[ProbeTake]
    choose: Sequence[ProbeTake]  # empty: the last epoch is kept
    mean: Tensor
    std: Tensor
    config: TrainedConfig
    background: int | None
    seed: int

    def __post_init__(self) -> None:
        kind = {"adamw": AdamW, "adam": Adam}[self.config.optimizer]
        self.optimizer: torch.optim.Optimizer = kind(
            self.model.parameters(),
            lr=self.config.lr,
            weight_decay=self.config.weight_decay,
            fused=True,  # a probe has many small tensors: one call for all of them
        )

    def run(self, path: Path | None, tick: Tick) -> Epochs:
        """Return the finished state after loading the best epoch into the module."""
        return train_to_best(self, Epochs(), path, tick)

    def finished(self, state: Epochs) -> bool:
        """Return whether all epochs are done."""
        return state.epoch >= self.config.epochs

    def epoch(self, state: Epochs, saver: Saver) -> None:
        """Pass once over all takes, then keep the module if it does best so far."""
        for group in self.optimizer.param_groups:
            group["lr"] = epoch_rate(self.config, state.epoch)
        order = np.random.default_rng([self.seed, ORDER, state.epoch]).permutation(len(self.takes))
        size, losses = self.config.batch_takes, []
        self.model.train()
        for first in range(0, len(order), size):
            batch = [self.takes[place] for place in order[first : first + size]]
            losses.append(self.step(batch, state.epoch))
        self.model.eval()
        score = self.score() if self.choose else None
        entry = {"loss": float(np.mean(losses))}
        state.close(self.model, score, entry if score is None else {**entry, "score": score})

    def step(self, batch: Sequence[ProbeTake], epoch: int) -> float:
        """Take one optimiser step on the mean loss of a few takes; return that loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for take in batch:
            torch.manual_seed(take_seed(self.seed, epoch, take.take_id))
            features, segments, labels = take.tensors(self.mean, self.std)
            loss = self.model.loss(self.model(features, segments), labels) / len(batch)
            if not torch.isfinite(loss):
                raise InputError(
                    f"take {take.take_id}: the probe's loss is not finite in epoch {epoch + 1}; "
                    "lower its lr, or set probe.common.input_norm=standardize"
                )
            loss.backward()
            total += float(loss.detach())
        if self.config.clip_grad:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_grad)
        self.optimizer.step()
        return total

    @torch.no_grad()
    def score(self) -> float:
        """Return the combined score on the takes that choices are made on."""
        found = []
        for take in self.choose:
            features, segments, _ = take.tensors(self.mean, self.std)
            guess = self.model.predict(features, segments).argmax(1).cpu().numpy()
            found.append(take_statistics(take.labels, guess, self.background))
        return combined_score({name: float(value) for name, value in scores(found).items()})

    def note(self, state: Epochs) -> str:
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
