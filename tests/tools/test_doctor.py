"""`pjepa doctor` tries things for real, and says broken where they are."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pjepa.tools import doctor
from pjepa.tools.cli import app
from pjepa.tools.doctor import CheckResult

ROOT = Path(__file__).parents[2]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_name(results: Iterable[CheckResult]) -> dict[str, CheckResult]:
    return {result.what.split(" ")[0]: result for result in results}


def test_this_machine_is_well(outside: Path) -> None:
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0, done.output
    assert "ok      h264 through pyav: 12 frames" in done.stdout
    assert "missing params.yaml: run inside the project" in done.stdout
    assert not list(outside.iterdir())  # nothing is left behind


def test_broken_parts_set_the_exit_code(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        raise RuntimeError("driver gone\nmore")

    monkeypatch.setattr(torch.cuda, "device_count", broken)
    monkeypatch.setitem(doctor.CODECS, "h264", ("no_such_encoder", "mp4"))
    monkeypatch.setenv("PJEPA_CACHE", "/proc/nothing")
    (outside / "file").write_text("")
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(outside / "file"))
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 1
    assert "3 broken" in done.stderr
    report = json.loads(done.stdout)
    results = {result["what"]: result for result in report["findings"]}
    assert report["broken"] == 3
    assert results["devices"] == {"state": "broken", "what": "devices", "detail": "driver gone"}
    assert results["cache"]["state"] == results["data root"]["state"] == "broken"
    assert results["h264 encoder"]["state"] == "missing"


@pytest.mark.parametrize(
    ("package", "state", "hint"),
    [
        ("timm", "broken", "run `pip install -c constraints.txt -e .`"),
        ("ray", "missing", "for machine.executor: ray, install pjepa[ray]"),
        ("decord", "missing", "PyAV reads the videos instead"),
    ],
)
def test_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, package: str, state: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = by_name(doctor.installation())[package]
    assert (result.state, hint in result.detail) == (state, True)


@pytest.mark.parametrize(
    ("params", "what", "state", "detail"),
    [
        ((ROOT / "params.yaml").read_text(), "params.yaml", "ok", "data from demo"),
        ((ROOT / "params.yaml").read_text(), "weights", "ok", "random-vjepa2_1_vit_tiny-0"),
        ("patches: {backbone: vjepa2_1_vit_base_384}", "weights", "missing", "pjepa fetch vjepa2"),
        ("patches: {corp: 3}", "params.yaml", "broken", "unknown parameter; did you mean crop?"),
        ("", "git", "broken", "this folder is not set up; run make, or git init, git commit"),
    ],
)  # fmt: skip
def test_lines_of_a_project(outside: Path, params: str, what: str, state: str, detail: str) -> None:
    (outside / "params.yaml").write_text(params)
    if state == "ok":
        author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(["git", *words], check=True)
        assert by_name(doctor.project())["git"].state == "ok"
    result = by_name(doctor.project())[what]
    assert (result.state, detail in result.detail) == (state, True), result


def test_the_authors_package_of_the_same_name_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(doctor.namesakes())
    (tmp_path / "pjepa" / "inference").mkdir(parents=True)
    (tmp_path / "pjepa" / "inference" / "encoder.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (result,) = doctor.namesakes()
    assert f"{tmp_path}/pjepa is the authors' release" in str(result)
    assert "virtual environment" in result.detail
