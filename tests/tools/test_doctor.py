"""`pjepa doctor` tries things for real, and says broken where they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pjepa.tools import doctor
from pjepa.tools.cli import app
from pjepa.tools.doctor import CheckResult, findings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_name(found: list[CheckResult]) -> dict[str, CheckResult]:
    return {finding.what.split(" ")[0]: finding for finding in found}


def test_this_machine_is_well(outside: Path) -> None:
    found = CliRunner().invoke(app, ["doctor"])
    assert found.exit_code == 0, found.output
    assert "ok      h264 through pyav: 12 frames" in found.stdout
    assert "missing params.yaml: run inside the project" in found.stdout
    assert not list(outside.iterdir())  # nothing is left behind


def test_findings_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CheckResult("broken", "disk", "full")
    monkeypatch.setattr(doctor, "findings", lambda: iter([one]))
    found = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(found.stdout)
    assert found.exit_code == 1
    assert report["findings"] == [{"state": "broken", "what": "disk", "detail": "full"}]
    assert report["broken"] == 1


@pytest.mark.slow
def test_every_line_of_a_project(outside: Path) -> None:
    (outside / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    found = by_name([*doctor.project(), *doctor.folders(), *doctor.backbone_weights()])
    assert found["params.yaml"].state == "ok"
    assert found["git"] == CheckResult(
        "broken", "git", "this folder is not set up; run make, or git init, git commit"
    )
    subprocess.run(["git", "init", "-q"], check=True)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert by_name(list(doctor.project()))["git"].state == "ok"
    assert found["weights"].detail == "random-vjepa2_1_vit_tiny-0"
    (outside / "params.yaml").write_text("patches:\n  backbone: vjepa2_1_vit_base_384\n")
    assert "pjepa fetch vjepa2_1_vit_base_384" in str(next(doctor.backbone_weights()))
    (outside / "params.yaml").write_text("patches:\n  corp: 3\n")
    assert str(next(doctor.project())).endswith("unknown parameter; did you mean crop?")


def test_broken_parts_are_found_and_set_the_exit_code(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("torch", "no_such_package"))
    monkeypatch.setattr(doctor, "OPTIONAL", {"no_other": "it is optional"})
    monkeypatch.setattr(doctor, "CODECS", {"h264": ("no_such_encoder", "mp4")})
    (outside / "file").write_text("")
    monkeypatch.setenv("PJEPA_CACHE", "/proc/nothing")
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(outside / "file"))
    found = CliRunner().invoke(app, ["doctor"])
    assert found.exit_code == 1
    states = {line[8:].split(":")[0]: line[:8].strip() for line in found.stdout.splitlines()}
    assert states["no_such_package"] == states["cache"] == states["data root"] == "broken"
    assert states["no_other"] == states["h264 encoder"] == "missing"
    assert "3 broken" in found.stderr


def test_a_film_that_reads_back_wrong_is_broken(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_film(path: Path, encoder: str) -> None:
        write_film(path, encoder)
        path.write_bytes(path.read_bytes()[:200])

    write_film = doctor.write_film
    monkeypatch.setattr(doctor, "write_film", cut_film)
    found = by_name(list(doctor.codecs()))
    assert found["h264"].state in ("broken", "missing")
    first = next(doctor.codecs())
    assert first.state == "broken"
    assert "reinstall av" in first.detail


def test_a_missing_extra_says_which_setting_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    found = by_name(list(doctor.installation()))["ray"]
    assert found.state == "missing"
    assert "for machine.executor: ray, install pjepa[ray]" in found.detail


@pytest.mark.slow
def test_an_unexpected_failure_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices() -> None:
        raise RuntimeError("driver gone\nmore")

    monkeypatch.setattr(doctor, "devices", devices)
    assert CheckResult("broken", "devices", "driver gone") in list(findings())


def test_the_authors_package_of_the_same_name_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(doctor.namesakes())
    (tmp_path / "pjepa" / "inference").mkdir(parents=True)
    (tmp_path / "pjepa" / "inference" / "encoder.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = doctor.namesakes()
    assert found.state == "broken"
    assert f"{tmp_path}/pjepa is the authors' release" in found.detail
    assert "virtual environment" in found.detail
