"""The two-headed probe decides as the release does, and the released heads load."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pjepa.core.tables import Classes, read_classes
from pjepa.probes.base.registry import load_probe
from pjepa.probes.base.trained import Task, TrainedProbe
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.foreground.probe import ForegroundProbe, Logits
from pjepa.probes.linear.probe import LinearProbe
from pjepa.tools.cli import app
from pjepa.tools.convert import head_classes, released_head
from pjepa.ui.console import InputError

HEADS = Path(__file__).parents[1] / "golden" / "pjepa" / "fake_release"
FEATURES = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)


def release_rule(state: dict, background: int) -> np.ndarray:
    """Foreground argmax where activity says so, else background."""
    x = torch.from_numpy(FEATURES)
    step = (x @ state["foreground_fc.weight"].T + state["foreground_fc.bias"]).argmax(1)
    active = (x @ state["activity_fc.weight"].T + state["activity_fc.bias"]).argmax(1) == 1
    step = step + (step >= background)
    return torch.where(active, step, torch.full_like(step, background)).numpy()


@pytest.mark.parametrize("background", [0, 2, 4])
def test_released_foreground_head(background: int, tmp_path: Path) -> None:
    path = HEADS / "head_foreground_activity.pt"
    probe = released_head(path, background)
    assert isinstance(probe, TrainedProbe)
    assert head_classes(probe) == Classes(tuple(f"class {n}" for n in range(5)), background)
    probability = probe.predict(FEATURES)
    assert probability.shape == (200, 5)
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-6)
    expected = release_rule(torch.load(path, weights_only=True), background)
    np.testing.assert_array_equal(probability.argmax(1), expected)
    assert len(set(expected.tolist())) == 5
    probe.save(tmp_path)
    np.testing.assert_array_equal(load_probe(tmp_path).predict(FEATURES), probability)


@pytest.mark.parametrize("name", ["head_bare_fc", "head_surgical"])
def test_released_affine_heads(name: str) -> None:
    bundle = torch.load(HEADS / f"{name}.pt", weights_only=True)
    state = bundle.get("model_state_dict", bundle)
    weight, bias = (v.numpy() for k, v in sorted(state.items(), reverse=True))
    probe = released_head(HEADS / f"{name}.pt")
    assert isinstance(probe, LinearProbe)
    expected = (FEATURES @ weight.T + bias).argmax(1)
    np.testing.assert_array_equal(probe.predict(FEATURES).argmax(1), expected)
    if name == "head_surgical":
        assert head_classes(probe) == Classes(("a", "b", "c"), None)
    assert "/old" not in str(probe.details)


def test_a_released_head_becomes_a_probe_by_command(tmp_path: Path) -> None:
    file, out = str(HEADS / "head_bare_fc.pt"), tmp_path / "model"
    assert "needs --out" in CliRunner().invoke(app, ["convert", file]).output
    result = CliRunner().invoke(app, ["convert", file, "--out", str(out)])
    assert result.exit_code == 0, result.output
    expected = released_head(Path(file)).predict(FEATURES)
    np.testing.assert_array_equal(load_probe(out).predict(FEATURES), expected)
    assert read_classes(out / "classes.json") == Classes(
        ("class 0", "class 1", "class 2", "class 3", "class 4"), None
    )
    again = CliRunner().invoke(app, ["convert", file, "--out", str(out)])
    assert again.exit_code == 1
    assert "exists and is not empty" in again.output


def test_files_that_are_no_heads(tmp_path: Path) -> None:
    torch.save({"other.weight": torch.zeros(2, 2)}, tmp_path / "other.pt")
    torch.save([1], tmp_path / "list.pt")
    torch.save({"fc.weight": torch.zeros(2, 3), "fc.bias": torch.zeros(3)}, tmp_path / "shape.pt")
    torch.save({"fc.weight": Path("x")}, tmp_path / "code.pt")
    (tmp_path / "text.pt").write_text("hello")
    for name, message in (
        ("other", "not a released head"),
        ("list", "holds a list"),
        ("shape", r"fc has no weight \[C, D\]"),
        ("code", "loads safely"),
        ("text", "loads safely"),
        ("none", "No such file"),
    ):
        with pytest.raises(InputError, match=message) as error:
            released_head(tmp_path / f"{name}.pt")
        assert "\n" not in str(error.value)


def test_loss_is_the_sum_of_both_heads() -> None:
    probe = ForegroundProbe(ForegroundConfig(), Task(3, 4, background=1))
    random = torch.Generator().manual_seed(0)
    logits = Logits(torch.randn(7, 3, generator=random), torch.randn(7, 2, generator=random))
    labels = torch.tensor([0, 1, 2, -1, 3, 1, 0])
    active = torch.tensor([0, 2, 4, 6])
    known = torch.tensor([0, 1, 2, 4, 5, 6])
    cross_entropy = torch.nn.functional.cross_entropy
    expected = cross_entropy(logits.foreground[active], torch.tensor([0, 1, 2, 0]))
    expected = expected + cross_entropy(logits.activity[known], torch.tensor([1, 0, 1, 1, 0, 1]))
    torch.testing.assert_close(probe.loss(logits, labels), expected)
    idle = probe.loss(logits, torch.tensor([1] * 7))
    torch.testing.assert_close(idle, cross_entropy(logits.activity, torch.zeros(7).long()))
    assert float(probe.loss(logits, torch.full((7,), -1))) == 0.0


def test_needs_a_background() -> None:
    with pytest.raises(InputError, match="use linear"):
        ForegroundProbe(ForegroundConfig(), Task(3, 4, None))
