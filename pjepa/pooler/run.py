"""The action pooler of a data set: trained on all train takes, and once more without each fold.

A pooler fitted on a take's own labels leaks them into its tokens; test takes get no such help, and
a model fitted on the train tokens would trust them too much. With `folds`, a train take's tokens
come from a pooler that never saw it, for as many epochs as the held-out groups chose for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pjepa.core.files import write_json
from pjepa.nn.log import Log
from pjepa.patches.store import PatchInfo, read_patches
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.examples import LabelledPatches, cut, fixed_clips
from pjepa.pooler.fit import (
    Fit,
    Judgement,
    PoolerEpochs,
    PoolerWithClassifier,
    balanced_weights,
    judged,
)
from pjepa.pooler.models.action import ActionPooler, ActionShape
from pjepa.pooler.models.alignment import agreement, procrustes
from pjepa.pooler.models.facts import CONFIG, common_config
from pjepa.pooler.models.stored import MODEL, fold_file, window_tokens, write_weights
from pjepa.pooler.takes import PoolerTakes, fold_of
from pjepa.ui.device import checked_device, tf32
from pjepa.ui.progress import Meter, say

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


@dataclass(frozen=True)
class TrainingRun:
    """One training: where its state is kept, what the progress bar calls it, and its length."""

    path: Path
    what: str
    epochs: int
    log: Log = lambda entry: None


@dataclass(frozen=True)
class Trained:
    """One trained pooler with its classifier, and how its training went."""

    model: PoolerWithClassifier
    state: PoolerEpochs


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
    run = TrainingRun(work / "all.pt", "pooler", config.epochs, log)
    main = _trained(task, takes.fit, takes.holdout, run)
    write_weights(folder / MODEL, main.model.pooler)
    numbers = _numbers(task, takes, main)
    folds = fold_of(takes.fit, config.folds, config.seed) if config.folds else {}
    if folds:
        numbers |= _train_folds(task, takes, folds, main, work, folder)
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
    run: TrainingRun,
) -> Trained:
    """Return one pooler from the seed's first weights to its best epoch."""
    config = task.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = PoolerWithClassifier(task.shape, config, task.classes)
    if task.scale is not None:
        model.pooler.mean.copy_(torch.from_numpy(task.scale[0]))
        model.pooler.std.copy_(torch.from_numpy(task.scale[1]))
    weights = balanced_weights(takes, task.classes) if config.class_weights == "balanced" else None
    fit = Fit(model, takes, judges, config, run.epochs, weights)
    with Meter(run.what, fit.epochs, "epoch") as meter, tf32(torch.device(config.device)):
        state = fit.run(run.path, lambda n, note, old: meter.advance(n, note, resumed=old), run.log)
    if fit.waiting() > STARVED:
        share = f"{100 * fit.waiting():.0f} %"
        say(f"{run.what}: {share} of the time waits for data: try machine.workers")
    return Trained(model, state)


def _train_folds(
    task: PoolerTask,
    takes: PoolerTakes,
    folds: dict[str, int],
    main: Trained,
    work: Path,
    folder: Path,
) -> dict[str, Any]:
    """Return one pooler per fold, mapped into the main one's space, and its scores on its fold."""
    config = task.config
    shared = takes.holdout or takes.fit  # seen by no pooler, or by all but one
    target = _tokens(task, main.model.pooler, shared)
    missed: list[Judgement] = []
    plain, turned = [], []
    for fold in range(config.folds):
        seen = [take for take in takes.fit if folds[take.take_id] != fold]
        unseen = [take for take in takes.fit if folds[take.take_id] == fold]
        what, path = f"pooler, fold {fold + 1} of {config.folds}", work / f"fold-{fold}.pt"
        found = _trained(task, seen, (), TrainingRun(path, what, main.state.best_epoch))
        missed.append(judged(found.model, fixed_clips(unseen, config), config))
        source = _tokens(task, found.model.pooler, shared)
        turn = procrustes(source, target) if config.fold_align == "procrustes" else None
        plain.append(agreement(source, target))
        turned.append(plain[-1] if turn is None else agreement(turn.turned(source), target))
        write_weights(folder / fold_file(fold), found.model.pooler, turn)
    count = sum(part.count for part in missed)
    return {
        "out_of_fold_acc": sum(part.accuracy * part.count for part in missed) / max(count, 1),
        "fold_acc": [part.accuracy for part in missed],
        "fold_agreement_before": plain,
        "fold_agreement": turned,
    }


def _numbers(task: PoolerTask, takes: PoolerTakes, main: Trained) -> dict[str, Any]:
    """Return the scores of the main pooler's classifier on its training and held-out takes."""
    config, state = task.config, main.state
    own = judged(main.model, fixed_clips(takes.fit, config), config)
    numbers = {"epochs": state.epoch, "best_epoch": state.best_epoch, "in_fold_acc": own.accuracy}
    if takes.holdout:
        numbers["holdout_acc"] = state.history[state.best_epoch - 1]["holdout_acc"]
    return numbers


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
