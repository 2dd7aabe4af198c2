import json

import pytest
import torch
from typer.testing import CliRunner

from pjepa.tools import selftest
from pjepa.tools.cli import app
from pjepa.tools.stage import check_machine
from pjepa.ui.console import InputError

SMALL = ["selftest", "--width", "32", "--heads", "2", "--tokens", "90"]


def test_the_cpu_agrees_with_itself():
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["ok"]
    assert set(report["path_error"].values()) == {0}
    assert "paste the JSON into an issue" in result.stderr
    assert report["attention_error"] < 1e-5
    assert set(report["fp32_error"]) == set(report["gradient_error"]) == set(selftest.MODES)
    assert report["training"]["fp32"]["tokens_per_s"] > 0


def test_a_wrong_kernel_is_noticed(monkeypatch):
    right = selftest.attention_plan
    monkeypatch.setattr(selftest, "attention_plan", lambda layout, block: right(layout, 0 * block))
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]


NO_CUDA = pytest.mark.skipif(torch.cuda.device_count() > 0, reason="needs a machine without CUDA")


@pytest.mark.parametrize(
    "name", ["warp:3", "cuda:", "cuda:x", "ipu", pytest.param("cuda", marks=NO_CUDA)]
)
def test_a_device_that_is_not_there_is_one_line(name):
    result = CliRunner().invoke(app, ["selftest", "--device", name])
    assert result.exit_code == 1
    assert result.output.startswith(f"error: device {name} cannot be used here")
    assert len(result.output.strip().splitlines()) == 1
    assert len(result.output) < 300


@NO_CUDA
def test_a_stage_refuses_a_missing_gpu_before_any_work(monkeypatch):
    monkeypatch.setenv("PJEPA_DEVICE", "cuda:1")
    with pytest.raises(InputError, match="device cuda:1 cannot be used here"):
        check_machine()
    monkeypatch.setenv("PJEPA_DEVICE", "auto")
    check_machine()
