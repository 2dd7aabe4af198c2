"""The action pooler of a data set: trained on all train takes, and once more without each fold.

A pooler fitted on a take's own labels leaks them into its tokens; test takes get no such help, and
a model fitted on the train tokens would trust them too much. With `folds`, a train take's tokens
come from a pooler that never saw it, for as many epochs as the held-out groups chose for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pjepa.nn.fit import AdamW, Epochs, Log, Tick, cosine_rate, no_log, train_to_best
from pjepa.nn.prefetch import Prefetch
from pjepa.patches.store import PatchInfo, read_patches
from pjepa.pooler.action import ActionPooler, ActionShape, AttentiveClassifier, real_places
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.stored import (
    CONFIG,
    MODEL,
    agreement,
    common_config,
    fold_file,
    procrustes,
    window_tokens,
    write_weights,
)
from pjepa.pooler.takes import (
    Clip,
    ClipBatch,
    LabelledPatches,
    PoolerTakes,
    clip_batches,
    cut,
    epoch_clips,
    fixed_clips,
    fold_of,
)
from pjepa.storage.saver import Saver
from pjepa.storage.writing import write_json
from pjepa.ui.console import InputError, Meter, say
from pjepa.ui.device import checked_device, tf32
from pjepa.ui.transfer import sent

# Training one action pooler: epoch, step, judgement, saved state; resumes to the same bytes.


class PoolerWithClassifier(nn.Module):
    """The pooler and the classifier that is discarded after training (Sec. 3.1)."""

    def __init__(self, shape: ActionShape, config: PoolerConfig, classes: int) -> None:
        super().__init__()
        self.pooler = ActionPooler(shape)
        self.clip = config.target == "clip"
        self.classifier: nn.Module = (
            AttentiveClassifier(
                shape.width, shape.heads, 1, classes, shape.mlp_ratio, shape.dropout
            )
            if self.clip
            else nn.Linear(shape.width, classes)
        )

    def forward(self, batch: ClipBatch) -> tuple[Tensor, Tensor]:
        """Return logits [K, C] and labels [K]: one row per window, or one per token."""
        tokens = self.pooler(batch.patches.float(), batch.lengths)  # [B, T, D]
        if not self.clip:
            return self.classifier(tokens).flatten(0, 1), self.labels(batch)
        real = None
        if batch.lengths is not None:
            real = real_places(batch.lengths, batch.patches.shape[1], self.pooler.shape.per_step)
        return self.classifier(tokens, real), self.labels(batch)

    def labels(self, batch: ClipBatch) -> Tensor:
        """Return the labels [K] of a batch; a clip lies in one segment."""
        return batch.labels[:, 0] if self.clip else batch.labels.flatten()


@dataclass(frozen=True)
class Judgement:
    """How well windows are classified; `count` are the known tokens or windows."""

    loss: float
    accuracy: float  # percent
    count: int


@dataclass
class PoolerEpochs(Epochs):
    """The state of training inside an epoch."""

    done: int = 0  # steps of this epoch, and what they summed up
    step: int = 0
    loss: float = 0.0
    labels: int = 0


@dataclass
class Fit:
    """One training run: takes to fit on, takes to judge by, and the number of epochs.

    Without judges the last epoch is kept; `epochs` may be fewer than the schedule's.
    """

    model: PoolerWithClassifier
    takes: Sequence[LabelledPatches]
    judges: Sequence[LabelledPatches]
    config: PoolerConfig
    epochs: int

    def __post_init__(self) -> None:
        config = self.config
        self.model.to(config.device)
        self.optimizer = AdamW(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.forward: nn.Module = self.model
        if config.compile:
            self.forward = torch.compile(self.model, dynamic=True)  # type: ignore[assignment]
        self.started, self.waited = time.monotonic(), 0.0

    def run(self, path: Path | None, tick: Tick, log: Log = no_log) -> PoolerEpochs:
        """Return the finished state, with the best weights loaded."""
        return train_to_best(self, PoolerEpochs(), path, tick, log)

    def finished(self, state: PoolerEpochs) -> bool:
        """Return whether all epochs are done, or patience has run out."""
        stale = bool(self.judges) and state.epoch - state.best_epoch >= self.config.patience
        return state.epoch >= self.epochs or stale

    def epoch(self, state: PoolerEpochs, saver: Saver) -> None:
        """Run the rest of one pass over all windows, then judge the model."""
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
                loss, labels = self.step(batch, lr, state)
                state.loss, state.labels = state.loss + loss * labels, state.labels + labels
                state.step, state.done = state.step + 1, state.done + 1
                if state.done < steps:
                    saver.save_when_due()
            self.waited += ready.waited
        self.model.eval()
        self.close_epoch(state)

    def step(self, batch: ClipBatch, lr: float, state: PoolerEpochs) -> tuple[float, int]:
        """Take one optimiser step; return the mean loss and the number of its known labels."""
        config = self.config
        torch.manual_seed(config.seed * 1_000_003 + state.step)  # dropout, the same after a restart
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        with _autocast(config):
            logits, labels = self.forward(batch.to(config.device))
        known = int((self.model.labels(batch) >= 0).sum())  # on the host: waits for no result
        total = cross_entropy(logits.float(), labels, ignore_index=-1, reduction="sum")
        loss = total / max(known, 1)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_grad)
        value, size = torch.stack([loss.detach(), norm]).tolist()  # the only wait of a step
        if not math.isfinite(size):
            raise InputError(
                f"pooler: the loss or its gradient is not finite in epoch {state.epoch + 1}; "
                "lower pooler.lr, or set pooler.input_norm=standardize"
            )
        self.optimizer.step()
        return value, known

    def close_epoch(self, state: PoolerEpochs) -> None:
        """Log the epoch and keep the model if it is the best so far on the judging takes."""
        entry = {"loss": state.loss / max(state.labels, 1)}
        state.done, state.loss, state.labels = 0, 0.0, 0
        score = None
        if self.judges:
            found = judged(self.model, fixed_clips(self.judges, self.config), self.config)
            entry |= {"holdout_loss": found.loss, "holdout_acc": found.accuracy}
            score = -found.loss
        entry["lr"] = float(self.optimizer.param_groups[0]["lr"])
        state.close(self.model, score, entry)

    def note(self, state: PoolerEpochs) -> str:
        """Return the note shown on the progress line."""
        last = state.history[-1]
        text = f"loss {last['loss']:.3f}"
        if self.judges:
            text += f", held out {last['holdout_acc']:.1f} %, best epoch {state.best_epoch}"
        return text

    def waiting(self) -> float:
        """Return the share of the time since the start that was spent waiting for data."""
        return self.waited / max(time.monotonic() - self.started, 1e-9)


def _autocast(config: PoolerConfig) -> torch.autocast:
    """Return an autocast to bf16 if the settings ask for it."""
    kind = torch.device(config.device).type
    return torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16")


@torch.no_grad()
def judged(model: PoolerWithClassifier, clips: Sequence[Clip], config: PoolerConfig) -> Judgement:
    """Return unweighted loss and accuracy over known tokens or windows."""
    loss, right, count = 0.0, 0, 0
    model.eval()
    with Prefetch(clip_batches(clips, config.batch_windows, config.workers)) as ready:
        for batch in ready:
            with _autocast(config):
                logits, labels = model(batch.to(config.device))
            known = sent((model.labels(batch) >= 0).nonzero()[:, 0], config.device)
            logits, labels = logits[known].double(), labels[known]
            error = cross_entropy(logits, labels, reduction="sum")
            hits = (logits.argmax(1) == labels).sum().double()
            error, hits = torch.stack([error, hits]).tolist()
            loss, right, count = loss + error, right + int(hits), count + len(labels)
    return Judgement(loss / max(count, 1), 100.0 * right / max(count, 1), count)


METRICS = "metrics.json"
STARVED = 0.1  # share of the time spent waiting for data that is worth reporting


@dataclass(frozen=True)
class PoolerTask:
    """A training task: settings, facts about the patches, classes, and the scale of the patches."""

    config: PoolerConfig
    info: PatchInfo
    classes: int
    scale: tuple[np.ndarray, np.ndarray] | None = None  # mean, standard deviation [cells, width]

    @property
    def shape(self) -> ActionShape:
        config, info = self.config, self.info
        return ActionShape(
            rows=info.rows, columns=info.columns, width_in=info.width,
            width=config.width or info.width, window=config.window,
            queries=config.queries or config.window, depth=config.depth, heads=config.heads,
            mlp_ratio=config.mlp_ratio, dropout=config.dropout, positions=config.positions,
            attend=config.attend,
        )  # fmt: skip


def train_pooler(
    task: PoolerTask, takes: PoolerTakes, work: Path, folder: Path, log: Log
) -> dict[str, Any]:
    """Train everything, write the poolers to `folder` and return the metrics.

    An interrupted run is resumed from its state in `work`.
    """
    config = task.config
    torch.set_num_threads(config.threads)
    checked_device(config.device, config.precision, "pooler.precision")
    if config.input_norm == "standardize":
        task = replace(task, scale=patch_statistics(takes.fit))
    main, state = _trained(
        task, takes.fit, takes.holdout, config.epochs, work / "all.pt", "pooler", log
    )
    write_weights(folder / MODEL, main.pooler)
    own = judged(main, fixed_clips(takes.fit, config), config)
    numbers = {"epochs": state.epoch, "best_epoch": state.best_epoch, "in_fold_acc": own.accuracy}
    if takes.holdout:
        numbers["holdout_acc"] = state.history[state.best_epoch - 1]["holdout_acc"]
    folds = fold_of(takes.fit, config.folds, config.seed) if config.folds else {}
    if folds:
        numbers |= _train_folds(task, takes, folds, main.pooler, state.best_epoch, work, folder)
    write_json(folder / METRICS, numbers)
    write_json(folder / CONFIG, pooler_config(task, bool(takes.holdout), folds))
    return numbers


def pooler_config(task: PoolerTask, judged: bool, folds: dict[str, int]) -> dict[str, Any]:
    """Return `config.json`: everything that making tokens needs besides the weights."""
    config, shape = task.config, task.shape
    found = common_config(
        "action", task.info, shape.width, shape.window, shape.per_step, config.scope
    )
    found["provenance"] = {
        "train_labels": True,
        "selection_labels": "holdout" if judged else "none",
        "folds": config.folds,
    }
    return found | {
        "model": asdict(shape),
        "target": config.target,
        "fold_of": folds,
        "batch_windows": config.batch_windows,
    }


def _trained(
    task: PoolerTask,
    takes: Sequence[LabelledPatches],
    judges: Sequence[LabelledPatches],
    epochs: int,
    path: Path,
    what: str,
    log: Log = no_log,
) -> tuple[PoolerWithClassifier, PoolerEpochs]:
    """Return one pooler from the seed's first weights to its best epoch, and how that went.

    Its state is kept at `path`; the progress line calls it `what`.
    """
    config = task.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = PoolerWithClassifier(task.shape, config, task.classes)
    if task.scale is not None:
        model.pooler.mean.copy_(torch.from_numpy(task.scale[0]))
        model.pooler.std.copy_(torch.from_numpy(task.scale[1]))
    fit = Fit(model, takes, judges, config, epochs)
    with Meter(what, epochs, "epoch") as meter, tf32(torch.device(config.device)):
        state = fit.run(path, lambda n, note, old: meter.advance(n, note, resumed=old), log)
    if fit.waiting() > STARVED:
        share = f"{100 * fit.waiting():.0f} %"
        say(f"{what}: {share} of the time waits for data: try machine.workers")
    return model, state


def _train_folds(
    task: PoolerTask,
    takes: PoolerTakes,
    folds: dict[str, int],
    main: ActionPooler,
    epochs: int,
    work: Path,
    folder: Path,
) -> dict[str, Any]:
    """Write one pooler per fold, mapped into the main one's space; return the scores on folds."""
    config = task.config
    shared = takes.holdout or takes.fit  # seen by no pooler, or by all but one
    target = _tokens(task, main, shared)
    missed: list[Judgement] = []
    plain, turned = [], []
    for fold in range(config.folds):
        seen = [take for take in takes.fit if folds[take.take_id] != fold]
        unseen = [take for take in takes.fit if folds[take.take_id] == fold]
        what, path = f"pooler, fold {fold + 1} of {config.folds}", work / f"fold-{fold}.pt"
        model, _ = _trained(task, seen, (), epochs, path, what)
        missed.append(judged(model, fixed_clips(unseen, config), config))
        source = _tokens(task, model.pooler, shared)
        turn = procrustes(source, target)
        plain.append(agreement(source, target))
        turned.append(agreement(turn.turned(source), target))
        write_weights(folder / fold_file(fold), model.pooler, turn)
    count = sum(part.count for part in missed)
    return {
        "out_of_fold_acc": sum(part.accuracy * part.count for part in missed) / max(count, 1),
        "fold_acc": [part.accuracy for part in missed],
        "fold_agreement_before": plain,
        "fold_agreement": turned,
    }


def _tokens(task: PoolerTask, pooler: ActionPooler, takes: Sequence[LabelledPatches]) -> np.ndarray:
    """Return tokens [M, D] of all windows of some takes, cut as in extraction."""
    config = task.config
    return np.concatenate(
        [
            window_tokens(
                pooler, read_patches(take.file).patches, cut(take, config, None),
                config.batch_windows, config.device,
            )
            for take in takes
        ]
    )  # fmt: skip


def patch_statistics(takes: Sequence[LabelledPatches]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation [cells, width] over all steps, in two passes."""
    count = sum(len(take.segment) for take in takes)

    def total(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        parts = (of(np.asarray(chunk, np.float64)) for take in takes for chunk in _chunks(take))
        return np.asarray(sum(part.sum(axis=0) for part in parts) / count)

    mean = total(lambda x: x)
    spread = np.sqrt(total(lambda x: (x - mean) ** 2))
    return mean, np.maximum(spread, 1e-6)


def _chunks(take: LabelledPatches, steps: int = 64) -> list[np.ndarray]:
    patches = read_patches(take.file).patches
    return [patches[first : first + steps] for first in range(0, len(patches), steps)]
