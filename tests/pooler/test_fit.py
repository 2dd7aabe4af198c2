"""Training of one pooler: it learns, stops, keeps the best, ignores what is unknown, resumes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pjepa.pooler.action import ActionShape
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.takes import PoolerTakes, fixed_clips, fold_of, pooler_takes
from pjepa.pooler.train import (
    Fit,
    PoolerWithClassifier,
    balanced_weights,
    judged,
    label_weight,
    mean_loss,
)
from pjepa.ui.console import InputError
from tests.pooler.world import CLASSES, WIDTH, World

SETTINGS: dict[str, Any] = {
    "kind": "action", "window": 6, "depth": 2, "heads": 2, "mlp_ratio": 2.0, "dropout": 0.1,
    "scope": "take", "target": "frame", "epochs": 6, "lr": 3e-3, "batch_windows": 8, "threads": 1,
    "workers": 2,
}  # fmt: skip


def config(**changes: Any) -> PoolerConfig:
    return PoolerConfig(**SETTINGS | changes)


def model(settings: PoolerConfig, seed: int = 0) -> PoolerWithClassifier:
    torch.manual_seed(seed)
    shape = ActionShape(
        2, 2, WIDTH, settings.width or WIDTH, settings.window, settings.window, settings.depth,
        settings.heads, settings.mlp_ratio, settings.dropout, settings.positions, settings.attend,
    )  # fmt: skip
    return PoolerWithClassifier(shape, settings, len(CLASSES.names))


def silent(count: int, note: str, resumed: bool) -> None:
    """No progress line."""


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
    fit = Fit(model(settings), takes.fit, takes.holdout, settings, 25)
    before = judged(fit.model, fixed_clips(takes.holdout, settings), settings)
    state = fit.run(None, silent)
    found = judged(fit.model, fixed_clips(takes.holdout, settings), settings)
    assert found.accuracy > 60 > before.accuracy  # four classes
    assert found.loss == state.history[state.best_epoch - 1]["holdout_loss"]  # the best is loaded
    assert state.best_epoch == 1 + np.argmin([entry["holdout_loss"] for entry in state.history])


def test_only_train_takes_are_ever_opened(world: World) -> None:
    for take in ("t10", "t11"):
        (world.folder / f"{take}.safetensors").unlink()
    takes = world.takes()
    assert [take.take_id for take in takes.fit] == [f"t{n}" for n in range(8)]
    assert [take.take_id for take in takes.holdout] == ["t8", "t9"]


def test_takes_without_patches_are_left_out_if_listed(world: World) -> None:
    (world.folder / "t3.safetensors").unlink()
    with pytest.raises(InputError, match=r"t3.safetensors: no such file"):
        world.takes()
    (world.folder / "skipped.json").write_text('{"t3": "the video is damaged"}')
    assert "t3" not in {take.take_id for take in world.takes().fit}


def test_training_stops_when_nothing_gets_better(world: World) -> None:
    settings = config(epochs=30, patience=2, lr=0.3, clip_grad=100.0)
    takes = world.takes()
    state = Fit(model(settings), takes.fit, takes.holdout, settings, 30).run(None, silent)
    assert state.epoch == state.best_epoch + 2 < 30


def test_without_holdout_the_last_epoch_is_kept(world: World) -> None:
    world.table["holdout"] = False
    settings = config(epochs=3, patience=1)
    takes = world.takes()
    assert len(takes.fit) == 10
    state = Fit(model(settings), takes.fit, takes.holdout, settings, 3).run(None, silent)
    assert (state.epoch, state.best_epoch) == (3, 3)
    assert set(state.history[0]) == {"loss", "lr"}


def test_unknown_labels_change_nothing() -> None:
    logits = torch.randn(6, 4, requires_grad=True, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, -1, 2, 0, -1, 1])
    for weights in (None, torch.tensor([0.5, 1.0, 2.0, 0.0])):
        weight = label_weight(labels, weights)
        loss = mean_loss(logits, labels, weights, weight)
        known = torch.nn.functional.cross_entropy(logits[labels >= 0], labels[labels >= 0], weights)
        assert float((loss - known).detach().abs()) < 1e-6
        assert weight == (4 if weights is None else 4.5)
        (slope,) = torch.autograd.grad(loss, logits)
        assert not slope[labels < 0].any()
    labels = torch.full((6,), -1)
    loss = mean_loss(logits, labels, None, label_weight(labels, None))
    assert float(loss.detach()) == 0


def test_balanced_weights_give_every_class_the_same_sum(tmp_path: Path) -> None:
    takes = World(tmp_path, unknown=True, rare=True).takes()
    labels = np.concatenate([take.labels for take in takes.fit])
    weights = balanced_weights(takes.fit, 5).numpy()
    sums = [weights[c] * (labels == c).sum() for c in range(4)]
    np.testing.assert_allclose(sums, sums[0], rtol=1e-5)
    assert weights[4] == 0
    assert np.mean(weights[labels[labels >= 0]]) == pytest.approx(1.0)


@pytest.mark.parametrize("target", ["clip", "frame"])
def test_a_class_with_one_example_does_not_crash(tmp_path: Path, target: str) -> None:
    takes = World(tmp_path, rare=True, unknown=True).takes()
    settings = config(epochs=2, target=target, class_weights="balanced", folds=4)
    folds = fold_of(takes.fit, 4, 0)
    for fold in range(4):
        seen = [take for take in takes.fit if folds[take.take_id] != fold]
        fit = Fit(model(settings), seen, (), settings, 1, balanced_weights(seen, 4))
        assert np.isfinite(fit.run(None, silent).history[0]["loss"])


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


class Killed(Exception):
    """What a kill is to a training that runs in this process."""


@pytest.mark.parametrize("after", [2, 9, 14])
def test_a_killed_training_ends_in_the_same_weights(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Also in the middle of an epoch: the state is saved after every step here."""
    monkeypatch.setattr("pjepa.storage.saver.Saver.is_due", lambda saver: True)
    settings, takes = config(epochs=3), world.takes()

    def fit(seed: int) -> Fit:
        return Fit(model(settings, seed), takes.fit, takes.holdout, settings, 3)

    whole = fit(0)
    expected = whole.run(None, silent)
    broken, steps = fit(0), iter(range(after))
    step = broken.step

    def dying(*arguments: Any) -> tuple[float, float]:
        if next(steps, None) is None:
            raise Killed
        return step(*arguments)

    monkeypatch.setattr(broken, "step", dying)
    with pytest.raises(Killed):
        broken.run(tmp_path / "state.pt", silent)
    resumed = fit(7)  # other first weights: all that counts is in the state
    found = resumed.run(tmp_path / "state.pt", silent)
    assert found.history == expected.history
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_loss_that_is_not_finite_is_one_line(world: World) -> None:
    settings, takes = config(), world.takes()
    broken = model(settings)
    broken.pooler.std.fill_(0.0)
    with pytest.raises(InputError, match=r"not finite in epoch 1; lower pooler.lr"):
        Fit(broken, takes.fit, takes.holdout, settings, 2).run(None, silent)


def test_wrong_labels_and_no_labels_are_named(world: World) -> None:
    def takes() -> PoolerTakes:
        return pooler_takes(world.table, world.segments, CLASSES, world.folder, 1)

    world.segments.loc[3, "label"] = 9
    with pytest.raises(InputError, match=r"take t0: label 9 of segment 3; expected -1"):
        takes()
    world.segments["label"] = -1
    with pytest.raises(InputError, match=r"no train take outside the hold-out has a label"):
        takes()
