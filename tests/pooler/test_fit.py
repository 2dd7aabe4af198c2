"""Training of one pooler: it learns, stops, keeps the best, ignores what is unknown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.takes import clip_batches, epoch_clips, fold_of
from pjepa.pooler.train import Fit, PoolerEpochs, PoolerTask
from pjepa.ui.console import InputError
from tests.pooler.world import CLASSES, INFO, World

SETTINGS: dict[str, Any] = {
    "kind": "action", "window": 6, "depth": 2, "heads": 2, "mlp_ratio": 2.0, "dropout": 0.1,
    "scope": "take", "target": "frame", "epochs": 6, "lr": 3e-3, "batch_windows": 8, "threads": 1,
    "workers": 2,
}  # fmt: skip


def config(**changes: Any) -> PoolerConfig:
    return PoolerConfig(**SETTINGS | changes)


def fit_of(settings: PoolerConfig, takes: Any, judges: Any = ()) -> Fit:
    task = PoolerTask(settings, INFO, len(CLASSES.names))
    return Fit(task, takes, judges, settings.epochs)


@pytest.fixture
def world(tmp_path: Path) -> World:
    torch.set_num_threads(1)
    return World(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"target": "frame", "attend": "steps"},
        {"target": "clip"},
        {"target": "clip", "positions": "none"},
    ],
)
def test_it_learns_what_held_out_takes_show(world: World, changes: dict[str, Any]) -> None:
    settings = config(**changes, epochs=25, dropout=0.0, patience=25)
    takes = world.takes()
    fit = fit_of(settings, takes.fit, takes.holdout)
    before = fit.judged(takes.holdout)
    state = fit.run(None, "test")
    found = fit.judged(takes.holdout)
    assert found.accuracy > 60 > before.accuracy  # four classes
    assert found.loss == state.history[state.best_epoch - 1]["holdout_loss"]  # the best is loaded
    assert state.best_epoch == 1 + np.argmin([entry["holdout_loss"] for entry in state.history])


def test_only_train_takes_are_ever_opened_and_those_without_patches_must_be_listed(
    world: World,
) -> None:
    for take in ("t3", "t10", "t11"):
        (world.folder / f"{take}.safetensors").unlink()
    with pytest.raises(InputError, match=r"t3.safetensors: no such file"):
        world.takes()
    (world.folder / "skipped.json").write_text('{"t3": "the video is damaged"}')
    takes = world.takes()
    assert [take.take_id for take in takes.fit] == [f"t{n}" for n in range(8) if n != 3]
    assert [take.take_id for take in takes.holdout] == ["t8", "t9"]


def test_training_stops_when_nothing_gets_better(world: World) -> None:
    settings = config(epochs=30, patience=2, lr=0.3, clip_grad=100.0)
    takes = world.takes()
    state = fit_of(settings, takes.fit, takes.holdout).run(None, "test")
    assert state.epoch == state.best_epoch + 2 < 30


def test_without_holdout_the_last_epoch_is_kept(world: World) -> None:
    world.table["holdout"] = False
    settings = config(epochs=3, patience=1)
    takes = world.takes()
    assert len(takes.fit) == 10
    state = fit_of(settings, takes.fit, takes.holdout).run(None, "test")
    assert (state.epoch, state.best_epoch) == (3, 3)
    assert set(state.history[0]) == {"loss", "lr"}


def test_unknown_labels_change_nothing(tmp_path: Path) -> None:
    takes, settings = World(tmp_path, unknown=True).takes().fit, config(dropout=0.0)
    fit = fit_of(settings, takes)
    batch = next(clip_batches(epoch_clips(takes, settings, 0), 8, 1))
    logits, labels = fit.model(batch)
    known = labels >= 0
    expected = cross_entropy(logits[known], labels[known])
    loss, count = fit.step(batch, 1e-3, PoolerEpochs())
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert count == int(known.sum()) < len(labels)
    unknown = replace(batch, labels=torch.full_like(batch.labels, -1))
    assert fit.step(unknown, 1e-3, PoolerEpochs()) == (0.0, 0)


@pytest.mark.parametrize("target", ["clip", "frame"])
def test_a_class_with_one_example_does_not_crash(tmp_path: Path, target: str) -> None:
    takes = World(tmp_path, rare=True, unknown=True).takes()
    settings = config(epochs=1, target=target)
    seen = [take for take in takes.fit if take.take_id != "t0"]  # the class is not in it at all
    for chosen in (takes.fit, seen):
        state = fit_of(settings, chosen).run(None, "test")
        assert np.isfinite(state.history[0]["loss"])


def test_folds_are_whole_groups_of_about_equal_number(world: World) -> None:
    takes = world.takes().fit
    folds = fold_of(takes, 3, seed=1)
    assert set(folds) == {take.take_id for take in takes}
    for group in {take.group for take in takes}:
        assert len({folds[take.take_id] for take in takes if take.group == group}) == 1
    counts = np.bincount(list(folds.values()))
    assert counts.max() - counts.min() <= 2  # groups have two takes
    with pytest.raises(InputError, match=r"pooler.folds 5: the train takes have 4 groups"):
        fold_of(takes, 5, 0)


def test_a_loss_that_is_not_finite_is_one_line(world: World) -> None:
    settings, takes = config(), world.takes()
    broken = fit_of(settings, takes.fit, takes.holdout)
    broken.model.pooler.std.fill_(0.0)
    with pytest.raises(InputError, match=r"not finite in epoch 1; lower pooler.lr"):
        broken.run(None, "test")


def test_wrong_labels_and_no_labels_are_named(world: World) -> None:
    world.segments.loc[3, "label"] = 9
    with pytest.raises(InputError, match=r"take t0: label 9 of segment 3; expected -1"):
        world.takes()
    world.segments["label"] = -1
    with pytest.raises(InputError, match=r"no train take outside the hold-out has a label"):
        world.takes()
