import json

from typer.testing import CliRunner

from pjepa import selftest
from pjepa.cli import app

SMALL = ["selftest", "--width", "32", "--heads", "2", "--tokens", "90"]


def test_the_cpu_agrees_with_itself():
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["ok"]
    assert report["attention"]["error"] < 1e-5
    assert set(report["fp32_error"]) == set(selftest.MODES)
    assert report["training"]["fp32"]["tokens_per_s"] > 0


def test_a_wrong_kernel_is_noticed(monkeypatch):
    right = selftest.attend
    monkeypatch.setattr(selftest, "attend", lambda *x: right(*x) * 1.01)
    result = CliRunner().invoke(app, SMALL)
    assert result.exit_code == 1
    assert not json.loads(result.output)["ok"]


def test_a_device_that_is_not_there_is_one_line():
    result = CliRunner().invoke(app, ["selftest", "--device", "warp:3"])
    assert result.exit_code == 1
    assert result.output.startswith("error: device warp:3 cannot be used here")
    assert len(result.output.strip().splitlines()) == 1
