"""One training loop: it learns, resumes to the same bytes, and chooses on nobody else."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pjepa.metrics.segmentation import label_runs
from pjepa.nn import fit as optimizers
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.config import ProbeCommonConfig, TrainedConfig
from pjepa.probes.base.registry import load_probe
from pjepa.probes.base.trained import Fitting, ProbeTake, Task, TrainedProbe, epoch_rate
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.ui.console import InputError
from tests.probes.kinds import KINDS

WIDTH, CLASSES = 6, 4
TASK = Task(WIDTH, CLASSES, background=0)
COMMON = ProbeCommonConfig(threads=1, input_norm="standardize")
SMALL: dict[str, TrainedConfig] = {
    "foreground": ForegroundConfig(epochs=6, lr=0.05, milestones=(4,)),
    "attentive": AttentiveConfig(
        epochs=6, lr=0.01, milestones=(4,), window=12, chunk=4, width=16, heads=2
    ),
    "ltcontext": LTContextConfig(
        epochs=6, lr=0.02, milestones=(4,), stages=2, layers=2, width=16, window=4, stride=4
    ),
    "ltcausal": LTCausalConfig(
        epochs=6, lr=0.02, milestones=(4,), stages=2, layers=2, width=16, window=4, stride=4
    ),
    "fact": FactConfig(
        epochs=6, lr=0.02, milestones=(4,), blocks="iU", tokens=4, hidden=16, frame_dim=16,
        action_dim=16, action_heads=2, action_ffn=16, frame_layers=2, update_frame_layers=2,
        action_layers=1, average_segments=3, smooth_weight=0.0,
    ),
}  # fmt: skip


def takes(count: int, seed: int = 0, noise: float = 0.3) -> list[ProbeTake]:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, WIDTH)) * 2
    found = []
    for number in range(count):
        labels = np.repeat(random.integers(0, CLASSES, 6), 5)
        features = (centres[labels] + noise * random.normal(size=(30, WIDTH))).astype(np.float16)
        found.append(ProbeTake(f"s{seed} t{number}", features, np.arange(30) // 5, labels))
    return found


def fitted(
    kind: str,
    shown: list[ProbeTake] | None = None,
    choose: list[ProbeTake] | None = None,
    seed: int = 0,
    **changes: object,
) -> TrainedProbe:
    config = SMALL[kind].model_copy(update=changes)
    shown = takes(8) if shown is None else shown
    choose = takes(2, 1) if choose is None else choose
    return Fitting(KINDS[kind], config, TASK, COMMON, shown, choose).fit(
        seed, None, lambda *_: None
    )


def accuracy(probe: TrainedProbe, on: list[ProbeTake]) -> float:
    hits = [
        (probe.predict(t.features.astype(np.float32), t.segments).argmax(1) == t.labels).mean()
        for t in on
    ]
    return 100 * float(np.mean(hits))


def same(a: TrainedProbe, b: TrainedProbe) -> bool:
    ours, theirs = a.module.state_dict(), b.module.state_dict()
    return [*ours] == [*theirs] and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", SMALL)
def test_separable_data_are_learned_in_batches_with_unknown_labels(kind: str) -> None:
    start = np.arange(30) < 5
    some = [dataclasses.replace(t, labels=np.where(start, -1, t.labels)) for t in takes(8)]
    blank = dataclasses.replace(takes(1, 9)[0], labels=np.full(30, -1))
    probe = fitted(kind, shown=[*some, blank], batch_takes=3)
    assert accuracy(probe, takes(5, 2)) > 90


def test_randomness_comes_from_the_seed_alone() -> None:
    torch.manual_seed(123)
    first = fitted("attentive")
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    assert same(first, fitted("attentive"))
    assert not same(first, fitted("attentive", seed=1))


def test_the_best_epoch_is_kept_not_the_last() -> None:
    probe = fitted("attentive", lr=3.0)  # diverges: an early epoch is best
    history = [entry["score"] for entry in probe.details["history"]]
    assert probe.details["epoch"] == 1 + int(np.argmax(history))
    last = fitted("attentive", choose=[])
    assert last.details["epoch"] == 6
    assert all(set(entry) == {"loss"} for entry in last.details["history"])


def test_choosing_takes_choose_and_nothing_else() -> None:
    random = np.random.default_rng(0)
    scrambled = [
        dataclasses.replace(take, labels=random.integers(0, CLASSES, 30)) for take in takes(2, 1)
    ]
    plain, other = fitted("attentive"), fitted("attentive", choose=scrambled)
    losses = [[entry["loss"] for entry in p.details["history"]] for p in (plain, other)]
    assert losses[0] == losses[1]


def test_gradients_are_clipped() -> None:
    adam = {"epochs": 1, "optimizer": "adam"}
    runs = ({"lr": 1e-30}, {"lr": 1e-3, "clip_grad": 1e-12}, {"lr": 1e-3})
    still, tight, loose = (
        fitted("foreground", **adam, **changes).module.get_parameter("activity_fc.weight")
        for changes in runs
    )
    assert (tight - still).abs().max() < (loose - still).abs().max() / 10


def test_learning_rates() -> None:
    step = TrainedConfig(lr=1.0, milestones=(5, 15), gamma=0.1)
    assert [round(epoch_rate(step, e), 4) for e in (0, 4, 5, 14, 15)] == [1, 1, 0.1, 0.1, 0.01]
    cosine = TrainedConfig(
        lr=2.5e-4, schedule="cosine", epochs=120, constant_epochs=15, lr_min=5e-5
    )
    rates = [epoch_rate(cosine, e) for e in (0, 15, 67, 119)]
    assert rates[:2] == [2.5e-4, 2.5e-4]
    assert rates[2] == pytest.approx(1.5e-4, rel=0.02)
    assert rates[3] == pytest.approx(5e-5, rel=0.01)


def test_a_diverging_loss_is_named() -> None:
    broken = takes(3)
    broken[1].features[:] = np.inf
    plain = COMMON.model_copy(update={"input_norm": "none"})
    fitting = Fitting(KINDS["foreground"], SMALL["foreground"], TASK, plain, broken, [])
    with pytest.raises(InputError, match="take s0 t1: the probe's loss is not finite in epoch 1"):
        fitting.fit(0, None, lambda *_: None)


@pytest.mark.slow
def test_every_kind_is_stored_and_loaded(tmp_path: Path) -> None:
    x, segments = takes(1)[0].features.astype(np.float32), takes(1)[0].segments
    for kind in SMALL:
        probe = fitted(kind, epochs=2)
        probe.save(tmp_path / kind)
        loaded = load_probe(tmp_path / kind)
        np.testing.assert_array_equal(loaded.predict(x, segments), probe.predict(x, segments))
        assert loaded.details == probe.details
        assert loaded.sight == probe.sight
        (tmp_path / kind / "config.json").write_text('{"kind": "other"}')
        with pytest.raises(InputError, match="unknown kind of probe 'other'"):
            load_probe(tmp_path / kind)
    assert set(SMALL) == set(KINDS)


def test_probes_of_earlier_versions_load_or_are_named(tmp_path: Path) -> None:
    probe = KINDS["ltcontext"].new(SMALL["ltcontext"], TASK, 0)
    probe.save(tmp_path)
    file, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors = load_file(file)
    save_file({k.replace("module.", "module.model."): v for k, v in tensors.items()}, file)
    assert same(load_probe(tmp_path), probe)  # type: ignore[arg-type]
    stored = json.loads(config.read_text())
    config.write_text(json.dumps(stored | {"settings": stored["settings"] | {"frame": "m"}}))
    with pytest.raises(InputError, match=r"config.json: frame: unknown parameter.*train .* again"):
        load_probe(tmp_path)


def test_fact_grows_its_tokens_to_the_longest_take() -> None:
    probe = fitted("fact", epochs=1)
    most = max(len(label_runs(take.labels).labels) for take in takes(8))
    assert most > 4
    assert probe.settings["tokens"] == most


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("fused", [True, False])
def test_optimisers_take_the_steps_of_torch(name: str, fused: bool) -> None:
    found = []
    for source in (optimizers, torch.optim):
        torch.manual_seed(0)
        layer = torch.nn.Linear(5, 3)
        optimizer = getattr(source, name)(layer.parameters(), 0.1, weight_decay=0.3, fused=fused)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.randn(4, 5)).square().sum().backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        found.append(torch.cat([p.flatten() for p in layer.parameters()]))
    assert torch.equal(*found)


@pytest.mark.slow
def test_training_does_not_import_the_compiler() -> None:
    """It takes as long as torch itself, in every process."""
    code = """
import sys, torch
from pjepa.nn.fit import AdamW
weight = torch.zeros(3, requires_grad=True)
optimizer = AdamW([weight], 0.1)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1])
weight.sum().backward()
optimizer.step()
schedule.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
