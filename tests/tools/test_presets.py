"""params.yaml is what a preset writes, and stays so when ruamel (that is, DVC) edits it."""

import io
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pjepa.core.section import read_params
from pjepa.tools.params import Params, check_params
from pjepa.tools.presets import params_text, preset_names, preset_text, preset_values
from pjepa.ui.console import InputError

ROOT = Path(__file__).parents[2]


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


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 99999), st.integers(-12, 6))
def test_every_float_people_write_survives(digits: int, exponent: int) -> None:
    value = float(f"{digits}e{exponent}")
    text = params_text(Params.model_validate({"pooler": {"lr": value}}))
    assert round_trip(text) == text
    pooler = text.partition("pooler:")[2]
    line = next(line for line in pooler.splitlines() if line.startswith("  lr:"))
    assert YAML(typ="safe").load(line)["lr"] == value
    if value < 1:
        assert yaml.safe_load(line)["lr"] == value


def test_what_differs_or_is_used_is_written() -> None:
    changes = {"pjepa": {"weight_decay": 0.0, "clip_grad": 2.0}, "data": {"source": "egoprocel"}}
    text = params_text(Params.model_validate(changes))
    for line in (
        "  weight_decay: 0.0\n",
        "  clip_grad: 2.0\n",
        "  egoprocel:\n    path: egoprocel\n",
    ):
        assert line in text
    assert Params.model_validate(yaml.safe_load(text)) == Params.model_validate(changes)


def test_the_shipped_file_is_readable_top_to_bottom() -> None:
    def count(value: object) -> int:
        parts = value.values() if isinstance(value, dict) else value
        return sum(map(count, parts)) if isinstance(value, dict | list) else 1

    text = (ROOT / "params.yaml").read_text()
    assert count(yaml.safe_load(text)) <= 160
    assert (text.count("device:"), text.count("threads:")) == (1, 2)
    lines = text.splitlines()
    for name in set(Params.model_fields) - {"threads"}:
        assert lines[lines.index(f"{name}:") + 1].startswith("  # ")
    assert not {"clip_grad:", "egoprocel:"} & {line.strip() for line in lines}


@pytest.mark.parametrize(
    ("name", "keep", "error"),
    [
        ("dema", [], "preset 'dema': no such preset in presets/; did you mean demo?"),
        ("../presets/demo", [], "no such preset"),
        ("demo", ["reprot"], "--keep reprot: no such section; known: machine"),
        ("bad", [], "presets/bad.yaml: pjepa.depht: unknown parameter; did you mean depth?"),
    ],
)
def test_errors_name_the_preset(clone: Path, name: str, keep: list[str], error: str) -> None:
    (clone / "presets" / "bad.yaml").write_text("pjepa:\n  depht: 3\n")
    with pytest.raises(InputError, match=re.escape(error)):
        preset_text(name, keep=keep)


def test_a_value_of_the_machine_in_a_section_is_told_its_new_place(clone: Path) -> None:
    (clone / "params.yaml").write_text("data: {source: demo, workers: 3}")
    with pytest.raises(InputError, match=r"data\.workers: it is machine\.workers now"):
        check_params()


@pytest.mark.parametrize("name", preset_names(ROOT / "presets"))
def test_a_preset_says_in_which_precision_it_trains(name: str) -> None:
    written = read_params(ROOT / "presets" / f"{name}.yaml")
    values = preset_values(name, folder=ROOT / "presets")
    if set(written) == {"probe"}:  # goes on top of another preset
        return
    trained = {"patches": values.data.source in ("demo", "egoexo4d", "folder") or "vjepa" in name}
    trained["pooler"] = values.pooler.kind == "action"
    trained["pjepa"] = values.pjepa.epochs > 0
    assert [s for s in trained if trained[s] and "precision" not in written.get(s, {})] == []
