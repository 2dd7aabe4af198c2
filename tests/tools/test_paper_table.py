"""`pjepa table`: the paper's numbers, ours beside them, and what is not like for like."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pjepa.core.machine import MachineConfig
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.compare.paper import (
    COMBINED,
    PAPER,
    RELEASE,
    Compared,
    PaperTable,
    applied_preset,
    caveats,
    changed_params,
    latex,
    paper_table,
)
from pjepa.tools.presets import params_text, preset_names, preset_values
from pjepa.ui.console import InputError

PRESETS = Path(__file__).resolve().parents[2] / "presets"
HERE = [name for name in PAPER if (PRESETS / f"{name}.yaml").exists()]


@pytest.mark.parametrize("name", HERE)
def test_the_header_of_a_preset_has_the_same_numbers(name):
    """Two places, one truth: what `table` compares with is what the preset's header says."""
    head = " ".join(
        line.lstrip("# ") for line in (PRESETS / f"{name}.yaml").read_text().splitlines()
        if line.startswith("#")
    )  # fmt: skip
    for row in PAPER[name]:
        if row.table == RELEASE:
            texts = [f"{row.scores[COMBINED]:.3f}"] * (len(PAPER[name]) == 1)
        elif row.probe == "linear" or not name.startswith("release-"):  # the recipe's own probe
            texts = [f"{value:.4g}" for value in row.scores.values()]
        else:
            texts = []
        assert [text for text in texts if text not in head] == []


@pytest.mark.parametrize("name", HERE)
def test_an_applied_preset_is_found_also_with_other_devices(clone, name):
    values = preset_values(name)
    used = values.model_copy(update={"machine": MachineConfig(device="cuda"), "threads": 9})
    assert changed_params(values, used) == []
    assert applied_preset(used, preset_names()) == name
    other = used.model_copy(update={"pjepa": used.pjepa.model_copy(update={"epochs": 3})})
    assert changed_params(values, other) == [f"pjepa.epochs 3 ({values.pjepa.epochs})"]
    assert applied_preset(other, preset_names()) == name


def test_own_data_are_no_presets(clone):
    values = preset_values("ikea-asm")
    mstcn = values.data.mstcn.model_copy(update={"dataset": "mine"})
    own = values.model_copy(update={"data": values.data.model_copy(update={"mstcn": mstcn})})
    with pytest.raises(InputError, match=r"no preset is for these data \(mstcn: mine\)"):
        applied_preset(own, preset_names())


def test_rows_that_were_not_run_say_so_and_other_presets_are_refused(clone):
    Path("params.yaml").write_text(params_text(preset_values("release-eval-assembly101-clip")))
    shown = CliRunner().invoke(app, ["table"])
    assert shown.exit_code == 0, shown.output
    assert "preset release-eval-assembly101-clip" in shown.output
    assert shown.output.count("not run") >= 20
    assert "Nothing of it was run" in shown.output
    assert "ike for like" not in shown.output
    assert "40.1" in shown.output
    refused = CliRunner().invoke(app, ["table", "--preset", "demo"])
    assert refused.exit_code == 1
    assert refused.output.startswith("error: preset demo: the paper has no numbers")


def test_a_budget_picks_its_rows(clone):
    values = preset_values("egoprocel-i3d-sparsity")
    table = paper_table("egoprocel-i3d-sparsity", values, paths.cell)
    names = [f"Table 4: fact on {representation} 15 %" for representation in ("raw", "pjepa")]
    assert [row.name for row in table.rows] == names
    common = values.probe.common.model_copy(update={"label_fraction": 0.2})
    probe = values.probe.model_copy(update={"common": common})
    other = paper_table(
        "egoprocel-i3d-sparsity", values.model_copy(update={"probe": probe}), paths.cell
    )
    assert other.rows == ()
    assert "the paper has no row for probe.common.label_fraction 0.2" in caveats(other)


def test_latex_is_escaped_and_keeps_the_caveats():
    row = Compared("a_b & c", {"f1_10": 15.2}, {"f1_10": 14.0}, ("chosen on `val` 100 %",))
    text = latex(PaperTable((row,)))
    assert r"a\_b \& c & paper & 15.2 \\" in text
    assert r"f1\_10" in text
    assert r"chosen on val 100 \% (all rows)" in text
