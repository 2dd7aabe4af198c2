import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pjepa.core import machine
from pjepa.model.neighbours import HEADS
from pjepa.model.objective import Counts, Jepa
from pjepa.nn.fit import learning_rate
from pjepa.pretrain.data import epoch_steps, pack
from pjepa.pretrain.feed import feed
from pjepa.pretrain.loop import Trainer, collapse_warning, effective_rank, pretrain, target_std
from pjepa.pretrain.setup import measure, new_model
from pjepa.storage.saver import Saver
from pjepa.ui.console import InputError
from tests.pretrain.conftest import changed, packed, tokens_of
from tests.storage.flip import flip


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def new_trainer(takes, config):
    return Trainer(new_model(config, takes, measure(takes)), config)


def first_batch(takes, config):
    return next(feed(takes, changed(config, exchange=0.0), None, 0, 0))[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "cut", "both", "snapshot"])
def test_a_damaged_state_is_renamed_and_the_bytes_are_the_same(
    takes, config, tmp_path, monkeypatch, capsys, damage
):
    monkeypatch.setattr(Saver, "is_due", lambda saver: True)
    config = changed(config, batch_tokens=40, snapshot_every=1)
    pretrain(takes, config, tmp_path / "a", tmp_path / "a-out", [].append)
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # a work folder as if its run had been killed
    state = tmp_path / "b" / "state.pt"
    if damage == "snapshot":
        flip(tmp_path / "b" / "snapshots" / "00001" / "model.safetensors", -1)
    elif damage == "cut":
        state.write_bytes(state.read_bytes()[:1000])
    else:
        flip(state, len(state.read_bytes()) // 2)
    if damage == "both":
        flip(state.with_name("state.pt.before"), 100)
    capsys.readouterr()
    pretrain(takes, config, tmp_path / "b", tmp_path / "b-out", [].append)
    lines = capsys.readouterr().err.splitlines()
    said = [line for line in lines if "is damaged" in line or "or damaged" in line]
    assert len(said) == (2 if damage == "both" else 1)
    assert files(tmp_path / "a-out") == files(tmp_path / "b-out")


def test_training_lowers_the_loss_and_leaves_snapshots(takes, config, tmp_path):
    log: list[dict[str, float]] = []
    config = changed(config, epochs=30, milestones=(25,), snapshot_every=10)
    pretrain(takes, config, tmp_path / "work", tmp_path / "out", log.append)
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    assert all(("neighbour_loss" in entry) == bool(config.neighbours) for entry in log)
    assert log[-1].get("neighbour_loss", 0.0) <= log[0].get("neighbour_loss", 0.0)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["00010", "00020", "00030"]
    assert log[5]["lr"] == config.lr
    assert log[-1]["lr"] == pytest.approx(config.lr * config.gamma)


@pytest.mark.parametrize("norm", ["none", "standardize", "take_center", "causal_center"])
def test_the_student_never_sees_a_target(takes, config, norm):
    model = new_model(changed(config, input_norm=norm), takes, measure(takes))
    batch = first_batch(takes, config)
    before = model.predictions(batch, model.context(batch))
    hidden = batch.mask.target
    batch.features[hidden] = torch.randn(len(hidden), 8) * 100
    assert torch.equal(before, model.predictions(batch, model.context(batch)))


def weights_after_a_step(takes, config, batches):
    trainer = new_trainer(takes, changed(config, lr=1e-2, warmup_steps=0))
    trainer.step(batches)
    weights = [p.detach().flatten() for p in trainer.model.parameters()]
    return trainer.progress.means()[0], torch.cat(weights)


def test_accumulation_is_one_large_batch(takes, config):
    whole = changed(config, batch_tokens=10_000)
    parts = changed(whole, batch_takes=1, accumulate=len(takes))
    (views,) = epoch_steps(takes, 0, whole)
    (same,) = epoch_steps(takes, 0, parts)
    assert [v.take for v in views] == [v.take for v in same]
    tokens = tokens_of(takes)
    one = weights_after_a_step(takes, whole, [pack(views, 0, whole, tokens)])
    many = weights_after_a_step(takes, parts, [pack([v], 0, parts, tokens) for v in views])
    assert one[0] == pytest.approx(many[0], rel=1e-5)
    torch.testing.assert_close(one[1], many[1], atol=1e-4, rtol=0)


NEEDS_COMPILER = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
]


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"checkpoint_activations": True}, 0.0),
        pytest.param({"compile": True}, 1e-4, marks=NEEDS_COMPILER),
    ],
)
def test_a_step_recomputed_or_compiled_is_the_same_step(takes, config, changes, tolerance):
    batch = first_batch(takes, config)
    plain = weights_after_a_step(takes, config, [batch])
    other = weights_after_a_step(takes, changed(config, **changes), [batch])
    assert plain[0] == pytest.approx(other[0], rel=tolerance / 10, abs=0)
    torch.testing.assert_close(plain[1], other[1], atol=tolerance, rtol=0)


def test_a_teacher_on_its_own_core_gives_the_same_bytes(takes, config, tmp_path, monkeypatch):
    config = changed(config, dropout=0.1, accumulate=2, predictor_heads=4, workers=2)
    threads, targets = set(), Jepa.targets

    def noted(*arguments):
        threads.add(threading.get_ident())
        return targets(*arguments)

    monkeypatch.setattr(Jepa, "targets", noted)
    for cores in (1, 2):
        threads.clear()
        monkeypatch.setattr(machine, "cores", lambda: cores)  # noqa: B023
        folder = tmp_path / str(cores)
        pretrain(takes, config, folder / "work", folder / "out", [].append)
        assert len(threads) == 1
        assert (threads == {threading.get_ident()}) == (cores == 1)
    assert files(tmp_path / "1" / "out") == files(tmp_path / "2" / "out")


@pytest.mark.parametrize(
    "changes", [{"threads": 4}, {"workers": 1}, {"precision": "bf16"}, {"compile": True}]
)
def test_the_teacher_gets_no_core_where_none_is_free(takes, config, monkeypatch, changes):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    trainer = new_trainer(takes, changed(config, **{"workers": 2, **changes}))
    assert trainer.teacher_thread is None


def test_an_empty_batch_moves_nothing(takes, config):
    model = new_model(config, takes, measure(takes))
    terms = model(pack([], 0, config, tokens_of(takes)), Counts(10, 10))
    loss = terms.eq2 if terms.neighbour is None else terms.eq2 + terms.neighbour
    loss.backward()
    assert loss == 0
    assert all(not p.grad.any() for p in model.trained_parameters())


def test_a_ready_encoder_is_kept_as_it_is_or_refused(takes, config, tmp_path, capsys):
    trained = pretrain(takes, config, tmp_path / "a", tmp_path / "first", [].append)
    again = changed(config, epochs=0, init_from=str(tmp_path / "first" / "00006"), width=32)
    kept = pretrain(takes, again, tmp_path / "b", tmp_path / "second", [].append)
    assert "uses its own width instead of params.yaml's" in capsys.readouterr().err
    assert kept.student.config == trained.student.config
    first = files(tmp_path / "first" / "00006")
    first.pop(Path(HEADS), None)  # heads are not part of an encoder
    assert files(tmp_path / "second" / "00000") == first
    for slow, fast in zip(kept.teacher.parameters(), kept.student.parameters(), strict=True):
        assert torch.equal(slow, fast)
    wide = [replace(take, features=np.tile(take.features, 2)) for take in takes]
    with pytest.raises(InputError, match="takes tokens of 8 channels, the stream has 16"):
        pretrain(wide, again, tmp_path / "c", tmp_path / "third", [].append)
    odd = changed(again, predictor_heads=3)
    with pytest.raises(InputError, match="predictor_heads 3 does not divide the width 16"):
        pretrain(takes, odd, tmp_path / "c", tmp_path / "third", [].append)


def test_a_diverged_loss_stops_in_words_and_changes_nothing(takes, config):
    trainer = new_trainer(takes, config)
    with torch.no_grad():
        trainer.model.student.norm.weight.fill_(float("nan"))
    before = trainer.model.student.proj[1].weight.clone()
    with pytest.raises(InputError, match="not finite"):
        trainer.step([packed(takes, config)])
    assert torch.equal(before, trainer.model.student.proj[1].weight)


def test_the_rate_warms_up():
    assert [learning_rate(1.0, 0, step, [], 0.1, 4) for step in (0, 3, 9)] == [0.25, 1.0, 1.0]


def test_monitors_tell_collapse():
    flat = torch.ones(50, 8) + 1e-4 * torch.randn(50, 1)
    assert collapse_warning(target_std(flat), effective_rank(flat))
    spread = torch.randn(500, 8)
    assert collapse_warning(target_std(spread), effective_rank(spread)) is None
    for table in (spread * torch.logspace(0, -3, 8), torch.randn(9, 40)):
        values = torch.linalg.svdvals((table - table.mean(0)).double())
        share = values[values > 1e-9] / values.sum()
        expected = float(torch.exp(-(share * share.log()).sum()))
        assert effective_rank(table) == pytest.approx(expected, rel=1e-5)


def test_a_last_step_of_few_targets_is_no_collapse(takes, config, tmp_path, capsys):
    first = takes[0]
    short = replace(first, features=first.features[:4], segment=first.segment[:4])
    one = changed(config, mask_ratio=0.3, epochs=1, exchange=0.0)
    seen = []
    pretrain([short], one, tmp_path / "work", tmp_path / "out", seen.append)
    assert np.isfinite(seen[0]["target_std"])
    assert "collapsing" not in capsys.readouterr().err
