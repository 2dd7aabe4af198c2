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
    trained = [f"pretrain, stream: {kind}" for kind in ("device", "host", "file")]
    assert report["path_error"] == dict.fromkeys((*trained, "patches", "linear", "stream"), 0)
    assert "paste the JSON into an issue" in result.stderr
    assert report["attention"]["error"] < 1e-5
    assert set(report["fp32_error"]) == set(selftest.MODES)
    assert report["training"]["fp32"]["tokens_per_s"] > 0


def test_a_wrong_kernel_is_noticed(monkeypatch):
    right = selftest.attend
    monkeypatch.setattr(selftest, "attend", lambda *x: right(*x) * 1.01)
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]


@pytest.mark.parametrize("name", ["warp:3", "cuda:", "cuda:x", "ipu"])
def test_a_device_that_is_not_there_is_one_line(name):
    result = CliRunner().invoke(app, ["selftest", "--device", name])
    assert result.exit_code == 1
    assert result.output.startswith(f"error: device {name} cannot be used here")
    assert len(result.output.strip().splitlines()) == 1
    assert len(result.output) < 300


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="needs a machine without CUDA")
def test_a_missing_gpu_is_one_line_for_tools_and_stages(monkeypatch):
    result = CliRunner().invoke(app, ["selftest", "--device", "cuda"])
    assert result.exit_code == 1
    assert result.output.startswith("error: device cuda cannot be used here (CUDA devices found: 0")
    assert len(result.output.strip().splitlines()) == 1
    monkeypatch.setenv("PJEPA_DEVICE", "cuda:1")
    with pytest.raises(InputError, match="device cuda:1 cannot be used here"):
        check_machine()
    monkeypatch.setenv("PJEPA_DEVICE", "auto")
    check_machine()
