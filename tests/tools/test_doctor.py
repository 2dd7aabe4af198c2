"""`pjepa doctor` tries things for real, and says broken where they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pjepa.tools import doctor
from pjepa.tools.cli import app

BASE = "vjepa2_1_vit_base_384"
SHIPPED = (Path(__file__).parents[2] / "params.yaml").read_text()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found() -> dict[str, tuple[str, str]]:
    """What the command finds: state and detail by what was tried."""
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    rows = {row["what"]: (row["state"], row["detail"]) for row in report["findings"]}
    assert report["broken"] == [state for state, _ in rows.values()].count("broken")
    return rows


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
    for package in ("timm", "ray", "decord"):
        monkeypatch.setitem(sys.modules, package, None)
    namesake = outside / "pjepa/inference/encoder.py"
    namesake.parent.mkdir(parents=True)
    namesake.touch()
    monkeypatch.syspath_prepend(outside)
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert (done.exit_code, "5 broken" in done.stderr) == (1, True)
    results = found()
    assert results["devices"] == ("broken", "driver gone")
    for what, state, detail in (
        ("cache", "broken", ""),
        ("data root", "broken", ""),
        ("h264 encoder", "missing", "not tried"),
        ("timm", "broken", "run `pip install -c constraints.txt -e .`"),
        ("ray", "missing", "for machine.executor: ray, install pjepa[ray]"),
        ("decord", "missing", "PyAV reads the videos instead"),
        ("another package called pjepa", "broken", f"{outside}/pjepa is the authors' release"),
    ):
        assert results[what][0] == state
        assert detail in results[what][1]


@pytest.mark.parametrize(
    ("params", "what", "state", "detail"),
    [
        (SHIPPED, "params.yaml", "ok", "data from demo"),
        (SHIPPED, "weights of vjepa2_1_vit_tiny", "ok", "random-vjepa2_1_vit_tiny-0"),
        (f"patches: {{backbone: {BASE}}}", f"weights of {BASE}", "missing", f"pjepa fetch {BASE}"),
        ("patches: {corp: 3}", "params.yaml", "broken", "unknown parameter; did you mean crop?"),
        ("", "git", "broken", "this folder is not set up; run make, or git init, git commit"),
    ],
)
def test_lines_of_a_project(outside: Path, params: str, what: str, state: str, detail: str) -> None:
    (outside / "params.yaml").write_text(params)
    if state == "ok":
        author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(["git", *words], check=True)
        assert found()["git"][0] == "ok"
    assert found()[what][0] == state
    assert detail in found()[what][1]
