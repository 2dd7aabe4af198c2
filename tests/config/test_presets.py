"""params.yaml is what a preset writes, and stays so when ruamel (that is, DVC) edits it."""

import io
import shutil
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pjepa.config.params import Params, check_params
from pjepa.config.presets import params_text, preset_names, preset_text, text_difference
from pjepa.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def round_trip(text: str) -> str:
    stream = io.StringIO()
    YAML().dump(YAML().load(text), stream)
    return stream.getvalue()


def test_shipped_params_are_the_demo_preset() -> None:
    assert (ROOT / "params.yaml").read_text() == preset_text("demo", folder=ROOT / "presets")


@pytest.mark.parametrize("name", preset_names(ROOT / "presets"))
def test_ruamel_writes_the_same_bytes(name: str) -> None:
    text = preset_text(name, folder=ROOT / "presets")
    assert round_trip(text) == text
    assert not set(text) & set("'\"[]{}")
    assert Params.model_validate(YAML(typ="safe").load(text)).model_dump()


def test_an_override_changes_one_line(project: Path) -> None:
    path = project / "params.yaml"
    before = preset_text("demo")
    path.write_text(before)
    apply_overrides(str(path), ["pjepa.mask_ratio=0.61"])
    changed = set(path.read_text().splitlines()) ^ set(before.splitlines())
    assert {line.strip() for line in changed} >= {"mask_ratio: 0.61"}
    assert len(path.read_text().splitlines()) == len(before.splitlines())
    assert len(changed) == 2
    assert check_params().pjepa.mask_ratio == 0.61


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 99999), st.integers(-12, 6))
def test_every_float_people_write_survives(digits: int, exponent: int) -> None:
    value = float(f"{digits}e{exponent}")
    text = params_text(Params.model_validate({"probe": {"linear": {"tolerance": value}}}))
    assert round_trip(text) == text
    line = next(line for line in text.splitlines() if "tolerance" in line)
    assert YAML(typ="safe").load(line)["tolerance"] == value
    if value < 1:
        assert yaml.safe_load(line)["tolerance"] == value


def test_learning_rates_read_like_learning_rates() -> None:
    text = params_text(Params.model_validate({"pjepa": {"lr": 3.5e-5, "weight_decay": 0.0}}))
    assert "\n  lr: 3.5e-5\n" in text
    assert "\n  weight_decay: 0.0\n" in text
    assert "\n    tolerance: 1.0e-4\n" in text


def test_every_section_has_a_comment() -> None:
    lines = params_text(Params()).splitlines()
    for name in Params.model_fields:
        assert lines[lines.index(f"{name}:") + 1].startswith("  # ")


def test_a_preset_never_builds_on_the_present_file(project: Path) -> None:
    (project / "params.yaml").write_text("pjepa:\n  mask_ratio: 0.33\nreport:\n  timelines: 9\n")
    assert "0.33" not in preset_text("demo")
    kept = preset_text("demo", keep=["report"])
    assert "timelines: 9" in kept
    assert "0.33" not in kept


def test_difference_shows_what_changes() -> None:
    assert text_difference("a: 1\n", "a: 1\n") == ""
    assert "-a: 1\n+a: 2\n" in text_difference("a: 1\n", "a: 2\n")


def test_errors_name_the_preset(project: Path) -> None:
    with pytest.raises(InputError, match="did you mean demo"):
        preset_text("dema")
    with pytest.raises(InputError, match="no such preset"):
        preset_text("../presets/demo")
    with pytest.raises(InputError, match="--keep reprot: no such section; known: data"):
        preset_text("demo", keep=["reprot"])
    (project / "presets" / "bad.yaml").write_text("pjepa:\n  depht: 3\n")
    with pytest.raises(InputError) as caught:
        preset_text("bad")
    assert str(caught.value) == (
        "presets/bad.yaml: pjepa.depht: unknown parameter; did you mean depth?"
    )
