import numpy as np
import pytest
import torch

from pjepa.errors import InputError
from pjepa.training import loop
from pjepa.training.data import epoch_batches, take_share, token_statistics
from pjepa.training.loop import new_model, pretrain, train_step
from pjepa.training.monitors import collapse_warning, effective_rank, target_std
from pjepa.training.schedule import learning_rate


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("after", [1, 3, 5])
def test_an_interrupted_run_ends_in_the_same_bytes(takes, config, tmp_path, monkeypatch, after):
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    straight: list[dict[str, float]] = []
    pretrain(takes, config, tmp_path / "a", tmp_path / "a-out", straight.append)
    broken: list[dict[str, float]] = []

    def log_and_die(entry):
        broken.append(entry)
        if len(broken) == after:
            raise Killed

    with pytest.raises(Killed):
        pretrain(takes, config, tmp_path / "b", tmp_path / "b-out", log_and_die)
    resumed: list[dict[str, float]] = []
    pretrain(takes, config, tmp_path / "b", tmp_path / "b-out", resumed.append)
    assert resumed == straight
    assert files(tmp_path / "a-out") == files(tmp_path / "b-out")


def test_training_lowers_the_loss_and_leaves_snapshots(takes, config, tmp_path):
    log: list[dict[str, float]] = []
    config = config.model_copy(update={"epochs": 30, "milestones": (25,), "snapshot_every": 10})
    pretrain(takes, config, tmp_path / "work", tmp_path / "out", log.append)
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["00010", "00020", "00030"]
    assert log[5]["lr"] == config.lr
    assert log[-1]["lr"] == pytest.approx(config.lr * config.gamma)


def test_no_gradient_reaches_the_teacher_and_it_follows_the_student(takes, config):
    model = new_model(config, takes)
    optimizer = torch.optim.AdamW(model.trained_parameters(), lr=1e-2)
    before = [p.clone() for p in model.teacher.parameters()]
    batch = next(epoch_batches(takes, 0, 0, 0.8, 1000))
    train_step(model, optimizer, batch, config)
    assert all(p.grad is None for p in model.teacher.parameters())
    for old, slow, fast in zip(
        before, model.teacher.parameters(), model.student.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, 0.9 * old + 0.1 * fast, atol=1e-6, rtol=1e-5)


def test_the_student_never_sees_a_target(takes, config):
    for norm in ("none", "standardize", "take_center", "causal_center"):
        model = new_model(config.model_copy(update={"input_norm": norm}), takes)
        batch = next(epoch_batches(takes, 0, 0, 0.8, 1000))
        before = model.predictions(batch)
        batch.features[batch.target] = torch.randn(int(batch.target.sum()), 8) * 100
        assert torch.equal(before, model.predictions(batch))


def test_a_diverged_loss_stops_in_words(takes, config):
    model = new_model(config, takes)
    with torch.no_grad():
        model.student.norm.weight.fill_(float("nan"))
    batch = next(epoch_batches(takes, 0, 0, 0.8, 1000))
    optimizer = torch.optim.AdamW(model.trained_parameters())
    with pytest.raises(InputError, match="not finite"):
        train_step(model, optimizer, batch, config)


def test_masks_do_not_depend_on_batches(takes):
    def masks(budget):
        found = {}
        for batch in epoch_batches(takes, 3, 7, 0.6, budget):
            parts = torch.split(batch.target, list(batch.layout.take_lengths))
            firsts = torch.split(batch.features, list(batch.layout.take_lengths))
            found.update({tuple(f[0].tolist()): p for f, p in zip(firsts, parts, strict=True)})
        return found

    one, many = masks(1), masks(10_000)
    assert len(one) == len(takes)
    assert one.keys() == many.keys()
    assert all(torch.equal(one[key], many[key]) for key in one)


def test_statistics_and_style_share(takes):
    stacked = np.concatenate([t.features.astype(np.float64) for t in takes])
    mean, std = token_statistics(takes)
    np.testing.assert_allclose(mean, stacked.mean(axis=0))
    np.testing.assert_allclose(std, stacked.std(axis=0))
    assert take_share(takes) > 0.5


def test_schedule():
    rates = [learning_rate(1.0, e, e, [2, 4], 0.1, 0) for e in range(6)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.01])
    assert learning_rate(1.0, 0, 0, [], 0.1, 4) == 0.25


def test_monitors_tell_collapse():
    flat = torch.ones(50, 8) + 1e-4 * torch.randn(50, 1)
    assert collapse_warning(target_std(flat), effective_rank(flat))
    spread = torch.randn(500, 8)
    assert effective_rank(spread) > 7
    assert collapse_warning(target_std(spread), effective_rank(spread)) is None
