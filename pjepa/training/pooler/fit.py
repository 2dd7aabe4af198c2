"""One action pooler trained: epoch -> step -> judgement -> state, resumed to the same bytes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pjepa.config.pooler import PoolerConfig
from pjepa.errors import InputError
from pjepa.pooling.action import ActionPooler, ActionShape, real_places
from pjepa.pooling.attentive import AttentiveClassifier
from pjepa.prefetch import Prefetch
from pjepa.training.log import Log
from pjepa.training.pooler.windows import (
    Clip,
    ClipBatch,
    LabelledPatches,
    clip_batches,
    epoch_clips,
    fixed_clips,
)
from pjepa.training.saver import Saver
from pjepa.training.schedule import cosine_rate, warmed

Tick = Callable[[int, str, bool], None]  # epochs done now, a note, whether an earlier run did them


class PoolerWithClassifier(nn.Module):
    """The pooler and the classifier that is thrown away after training (Sec. 3.1)."""

    def __init__(self, shape: ActionShape, config: PoolerConfig, classes: int) -> None:
        super().__init__()
        self.pooler = ActionPooler(shape)
        self.clip = config.target == "clip"
        self.classifier: nn.Module = (
            AttentiveClassifier(
                shape.width, shape.heads, config.classifier_depth, classes,
                shape.mlp_ratio, shape.dropout,
            )
            if self.clip
            else nn.Linear(shape.width, classes)
        )  # fmt: skip

    def forward(self, batch: ClipBatch) -> tuple[Tensor, Tensor]:
        """Logits [K, C] and labels [K]: one row per window, or one per token."""
        tokens = self.pooler(batch.patches.float(), batch.lengths)  # [B, T, D]
        if not self.clip:
            return self.classifier(tokens).flatten(0, 1), batch.labels.flatten()
        real = None
        if batch.lengths is not None:
            real = real_places(batch.lengths, batch.patches.shape[1], self.pooler.shape.per_step)
        return self.classifier(tokens, real), batch.labels[:, 0]  # a clip lies in one segment


@dataclass(frozen=True)
class Judgement:
    """How well windows are classified; `count` are the known tokens or windows."""

    loss: float
    accuracy: float  # percent
    count: int


@dataclass
class State:
    """Everything the next step depends on besides the model and its optimiser."""

    epoch: int = 0
    done: int = 0  # steps of this epoch, and what they summed up
    step: int = 0
    loss: float = 0.0
    weight: float = 0.0
    best_epoch: int = 0
    best_score: float = -math.inf
    best: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass
class Fit:
    """One training: who is shown, who judges, and for how long.

    Without judges the last epoch is kept; `epochs` may be fewer than the schedule's.
    """

    model: PoolerWithClassifier
    takes: Sequence[LabelledPatches]
    judges: Sequence[LabelledPatches]
    config: PoolerConfig
    epochs: int
    weights: Tensor | None = None  # [C] of the classes in the loss

    def __post_init__(self) -> None:
        config = self.config
        self.model.to(config.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.weights = None if self.weights is None else self.weights.to(config.device)
        self.forward: nn.Module = self.model
        if config.compile:
            self.forward = torch.compile(self.model, dynamic=True)  # type: ignore[assignment]
        self.started, self.waited = time.monotonic(), 0.0

    def run(self, path: Path | None, tick: Tick, log: Log = lambda entry: None) -> State:
        """The finished state, its best weights loaded; continues what a killed run left.

        `log` is given every epoch's entry, those of an earlier run again.
        """
        state, saver = self.resumed(path)
        tick(state.epoch, "", True)
        for entry in state.history:
            log(entry)
        while not self.finished(state):
            self.epoch(state, saver)
            saver.save_when_due(now=self.finished(state))
            tick(1, self.note(state), False)
            log(state.history[-1])
        self.model.load_state_dict(state.best)
        self.model.eval()
        return state

    def finished(self, state: State) -> bool:
        """Whether all epochs are done, or none has been better for too long."""
        stale = bool(self.judges) and state.epoch - state.best_epoch >= self.config.patience
        return state.epoch >= self.epochs or stale

    def resumed(self, path: Path | None) -> tuple[State, Saver]:
        """Where a saved training stands after restoring it, and what saves it."""
        state = State()
        parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}
        saver = Saver(
            path, lambda: vars(state) | {name: part.state_dict() for name, part in parts.items()}
        )
        saved = saver.saved(self.config.device)
        if saved is not None:
            for name, part in parts.items():
                part.load_state_dict(saved.pop(name))
            vars(state).update(saved)
        return state, saver

    def epoch(self, state: State, saver: Saver) -> None:
        """The rest of one pass over all windows, then the judgement."""
        size = self.config.batch_windows
        clips = epoch_clips(self.takes, self.config, state.epoch)
        left = clip_batches(clips[state.done * size :], size, self.config.workers)
        steps = -(-len(clips) // size)
        self.model.train()
        with Prefetch(left) as ready:
            for batch in ready:
                lr = cosine_rate(
                    self.config.lr, 0.0, state.epoch * steps + state.done,
                    self.config.epochs * steps,
                )  # fmt: skip
                loss, weight = self.step(batch, warmed(lr, state.step, self.config.warmup_steps),
                                         state)  # fmt: skip
                state.loss, state.weight = state.loss + loss * weight, state.weight + weight
                state.step, state.done = state.step + 1, state.done + 1
                if state.done < steps:
                    saver.save_when_due()
            self.waited += ready.waited
        self.model.eval()
        self.close_epoch(state)

    def step(self, batch: ClipBatch, lr: float, state: State) -> tuple[float, float]:
        """One optimiser step; the mean loss and the weight of the labels it is a mean over."""
        config = self.config
        torch.manual_seed(config.seed * 1_000_003 + state.step)  # dropout, the same after a restart
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        with _autocast(config):
            logits, labels = self.forward(batch.to(config.device))
        loss, weight = mean_loss(logits.float(), labels, self.weights)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_grad)
        if not torch.isfinite(norm):
            raise InputError(
                f"pooler: the loss or its gradient is not finite in epoch {state.epoch + 1}; "
                "lower pooler.lr, or set pooler.input_norm=standardize"
            )
        self.optimizer.step()
        return float(loss.detach()), weight

    def close_epoch(self, state: State) -> None:
        """Logs the epoch and keeps the model if the judges like it best so far."""
        entry = {"loss": state.loss / max(state.weight, 1e-12)}
        state.epoch, state.done, state.loss, state.weight = state.epoch + 1, 0, 0.0, 0.0
        score = float(state.epoch)
        if self.judges:
            found = judged(self.model, fixed_clips(self.judges, self.config), self.config)
            entry |= {"holdout_loss": found.loss, "holdout_acc": found.accuracy}
            score = found.accuracy if self.config.judge == "accuracy" else -found.loss
        if score > state.best_score:
            state.best_epoch, state.best_score = state.epoch, score
            state.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        entry["lr"] = float(self.optimizer.param_groups[0]["lr"])
        state.history.append(entry)

    def note(self, state: State) -> str:
        """What the progress line shows beside the epoch."""
        last = state.history[-1]
        text = f"loss {last['loss']:.3f}"
        if self.judges:
            text += f", held out {last['holdout_acc']:.1f} %, best epoch {state.best_epoch}"
        return text

    def waiting(self) -> float:
        """Share of the time since the start that was spent waiting for data."""
        return self.waited / max(time.monotonic() - self.started, 1e-9)


def _autocast(config: PoolerConfig) -> torch.autocast:
    """bf16 where the settings say so."""
    kind = torch.device(config.device).type
    return torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16")


def mean_loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, float]:
    """Weighted mean cross-entropy over known labels, and the sum of their weights.

    A batch without known labels has loss 0 and weight 0.
    """
    known = labels >= 0
    total = cross_entropy(logits, labels, weights, ignore_index=-1, reduction="sum")
    weight = known.sum().float() if weights is None else weights[labels[known]].sum()
    return total / weight.clamp_min(1e-12), float(weight)


@torch.no_grad()
def judged(model: PoolerWithClassifier, clips: Sequence[Clip], config: PoolerConfig) -> Judgement:
    """Unweighted loss and accuracy over known tokens or windows."""
    loss, right, count = 0.0, 0, 0
    model.eval()
    with Prefetch(clip_batches(clips, config.batch_windows, config.workers)) as ready:
        for batch in ready:
            with _autocast(config):
                logits, labels = model(batch.to(config.device))
            known = labels >= 0
            logits, labels = logits[known].double(), labels[known]
            loss += float(cross_entropy(logits, labels, reduction="sum"))
            right += int((logits.argmax(1) == labels).sum())
            count += len(labels)
    return Judgement(loss / max(count, 1), 100.0 * right / max(count, 1), count)


def balanced_weights(takes: Sequence[LabelledPatches], classes: int) -> Tensor:
    """Inverse frequency of every class over known tokens, mean 1 over tokens; 0 if it has none."""
    labels = np.concatenate([take.labels for take in takes])
    count = np.bincount(labels[labels >= 0], minlength=classes)
    weight = count.sum() / (max((count > 0).sum(), 1) * np.maximum(count, 1))
    return torch.from_numpy(np.where(count > 0, weight, 0.0)).float()
