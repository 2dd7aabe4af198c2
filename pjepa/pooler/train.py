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

from pjepa.nn.fit import AdamW, Epochs, Log, cosine_rate, no_log, train_to_best
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

METRICS = "metrics.json"
STARVED = 0.1  # share of the time spent waiting for data that is worth reporting


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
class PoolerTask:
    """A training task: settings, facts about the patches, classes, and the scale of the patches."""

    config: PoolerConfig
    info: PatchInfo
    classes: int
    scale: tuple[np.ndarray, np.ndarray] = (np.zeros(1), np.ones(1))  # mean, std [cells, width]

    @property
    def shape(self) -> ActionShape:
        config, info = self.config, self.info
        names = ("window", "depth", "heads", "mlp_ratio", "dropout", "positions", "attend")
        settings: dict[str, Any] = {name: getattr(config, name) for name in names}
        sizes = {"width": config.width or info.width, "queries": config.queries or config.window}
        grid = {"rows": info.rows, "columns": info.columns, "width_in": info.width}
        return ActionShape(**settings | sizes | grid)

    def first_model(self) -> PoolerWithClassifier:
        """Return the model with the seed's first weights, the same for every fold."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            model = PoolerWithClassifier(self.shape, self.config, self.classes)
        mean, std = (torch.from_numpy(values) for values in self.scale)
        model.pooler.mean.copy_(mean)
        model.pooler.std.copy_(std)
        return model


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


class Fit:
    """One training: takes to fit on, takes to judge by, and the number of epochs.

    Without judges the last epoch is kept; `epochs` may be fewer than the schedule's. An interrupted
    one is resumed to the same bytes.
    """

    def __init__(
        self,
        task: PoolerTask,
        takes: Sequence[LabelledPatches],
        judges: Sequence[LabelledPatches],
        epochs: int,
    ) -> None:
        self.takes, self.judges, self.epochs = takes, judges, epochs
        self.config = config = task.config
        self.model = task.first_model().to(config.device)
        self.optimizer = AdamW(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.waited = 0.0  # seconds, for data

    def run(self, path: Path | None, what: str, log: Log = no_log) -> PoolerEpochs:
        """Return the finished state, with the best weights loaded; it is kept at `path`.

        `what` names the training on the progress line.
        """
        started = time.monotonic()
        with Meter(what, self.epochs, "epoch") as meter, tf32(torch.device(self.config.device)):
            state = train_to_best(
                self, PoolerEpochs(), path,
                lambda done, note, old: meter.advance(done, note, resumed=old), log,
            )  # fmt: skip
        waiting = self.waited / max(time.monotonic() - started, 1e-9)
        if waiting > STARVED:
            share = f"{100 * waiting:.0f} %"
            say(f"{what}: {share} of the time waits for data: try machine.workers")
        return state

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
        with self._autocast():
            logits, labels = self.model(batch.to(config.device))
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
            judgement = self.judged(self.judges)
            entry |= {"holdout_loss": judgement.loss, "holdout_acc": judgement.accuracy}
            score = -judgement.loss
        entry["lr"] = float(self.optimizer.param_groups[0]["lr"])
        state.close(self.model, score, entry)

    def note(self, state: PoolerEpochs) -> str:
        """Return the note shown on the progress line."""
        last = state.history[-1]
        text = f"loss {last['loss']:.3f}"
        if self.judges:
            text += f", held out {last['holdout_acc']:.1f} %, best epoch {state.best_epoch}"
        return text

    @torch.no_grad()
    def judged(self, takes: Sequence[LabelledPatches]) -> Judgement:
        """Return loss and accuracy over the known tokens or windows of takes, cut as always."""
        config, device = self.config, self.config.device
        clips = fixed_clips(takes, config)
        loss, right, count = 0.0, 0, 0
        self.model.eval()
        with Prefetch(clip_batches(clips, config.batch_windows, config.workers)) as ready:
            for batch in ready:
                with self._autocast():
                    logits, labels = self.model(batch.to(device))
                known = sent((self.model.labels(batch) >= 0).nonzero()[:, 0], device)
                logits, labels = logits[known].double(), labels[known]
                error = cross_entropy(logits, labels, reduction="sum")
                hits = (logits.argmax(1) == labels).sum().double()
                error, hits = torch.stack([error, hits]).tolist()
                loss, right, count = loss + error, right + int(hits), count + len(labels)
        return Judgement(loss / max(count, 1), 100.0 * right / max(count, 1), count)

    def tokens(self, takes: Sequence[LabelledPatches]) -> np.ndarray:
        """Return tokens [M, D] of all windows of some takes, cut as in extraction."""
        config = self.config
        return np.concatenate(
            [
                window_tokens(
                    self.model.pooler, read_patches(take.file).patches, cut(take, config, None),
                    config.batch_windows, config.device,
                )
                for take in takes
            ]
        )  # fmt: skip

    def _autocast(self) -> torch.autocast:
        """Return an autocast to bf16 if the settings ask for it."""
        kind = torch.device(self.config.device).type
        return torch.autocast(kind, torch.bfloat16, enabled=self.config.precision == "bf16")


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
    main = Fit(task, takes.fit, takes.holdout, config.epochs)
    state = main.run(work / "all.pt", "pooler", log)
    write_weights(folder / MODEL, main.model.pooler)
    numbers: dict[str, Any] = {"epochs": state.epoch, "best_epoch": state.best_epoch}
    numbers["in_fold_acc"] = main.judged(takes.fit).accuracy
    if takes.holdout:
        numbers["holdout_acc"] = state.history[state.best_epoch - 1]["holdout_acc"]
    folds = fold_of(takes.fit, config.folds, config.seed) if config.folds else {}
    if folds:
        numbers |= _train_folds(task, takes, folds, main, state.best_epoch, work, folder)
    write_json(folder / METRICS, numbers)
    write_json(folder / CONFIG, pooler_config(task, bool(takes.holdout), folds))
    return numbers


def pooler_config(task: PoolerTask, judged: bool, folds: dict[str, int]) -> dict[str, Any]:
    """Return `config.json`: everything that making tokens needs besides the weights."""
    config, shape = task.config, task.shape
    common = common_config(
        "action", task.info, shape.width, shape.window, shape.per_step, config.scope
    )
    common["provenance"] = {
        "train_labels": True,
        "selection_labels": "holdout" if judged else "none",
        "folds": config.folds,
    }
    return common | {
        "model": asdict(shape),
        "target": config.target,
        "fold_of": folds,
        "batch_windows": config.batch_windows,
    }


def _train_folds(
    task: PoolerTask,
    takes: PoolerTakes,
    folds: dict[str, int],
    main: Fit,
    epochs: int,
    work: Path,
    folder: Path,
) -> dict[str, Any]:
    """Write one pooler per fold, mapped into the main one's space; return the scores on folds."""
    shared = takes.holdout or takes.fit  # seen by no pooler, or by all but one
    target = main.tokens(shared)
    unseen_scores: list[Judgement] = []
    plain, turned = [], []
    for fold in range(task.config.folds):
        seen = [take for take in takes.fit if folds[take.take_id] != fold]
        unseen = [take for take in takes.fit if folds[take.take_id] == fold]
        fit = Fit(task, seen, (), epochs)
        fit.run(work / f"fold-{fold}.pt", f"pooler, fold {fold + 1} of {task.config.folds}")
        unseen_scores.append(fit.judged(unseen))
        source = fit.tokens(shared)
        turn = procrustes(source, target)
        plain.append(agreement(source, target))
        turned.append(agreement(turn.turned(source), target))
        write_weights(folder / fold_file(fold), fit.model.pooler, turn)
    count = sum(fold.count for fold in unseen_scores)
    return {
        "out_of_fold_acc": sum(f.accuracy * f.count for f in unseen_scores) / max(count, 1),
        "fold_acc": [fold.accuracy for fold in unseen_scores],
        "fold_agreement_before": plain,
        "fold_agreement": turned,
    }


def patch_statistics(takes: Sequence[LabelledPatches]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation [cells, width] over all steps, in two passes."""
    count = sum(len(take.segment) for take in takes)

    def total(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        chunks = (of(np.asarray(chunk, np.float64)) for take in takes for chunk in _chunks(take))
        return np.asarray(sum(values.sum(axis=0) for values in chunks) / count)

    mean = total(lambda x: x)
    spread = np.sqrt(total(lambda x: (x - mean) ** 2))
    return mean, np.maximum(spread, 1e-6)


def _chunks(take: LabelledPatches, steps: int = 64) -> list[np.ndarray]:
    patches = read_patches(take.file).patches
    return [patches[first : first + steps] for first in range(0, len(patches), steps)]
