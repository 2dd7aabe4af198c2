"""Experiments are read by their revisions, from Git and from DVC's cache."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pjepa.report.results import Cell
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.cli import app
from tests.tools.test_compare import FULL, TAKES, a_cell

PARAMS = """
cells: {probes: [linear], representations: [raw, pjepa]}
report: {bootstrap: 60}
"""


def write_cell(cell: Cell) -> None:
    """A cell's files as the probe stage writes them, as far as a comparison reads them."""
    rows = [
        {"statistics": {take: asdict(row) for take, row in variant.items()}}
        for variant in cell.statistics.variants
    ]
    spans = {name: vars(cell.intervals[name]) for name in cell.metrics}
    details = {
        "fits": ["trained"], "runs": {"trained": rows}, "intervals": {"trained": spans},
        "groups": TAKES, "provenance": cell.provenance.model_dump(), "split": cell.split,
        "convention": cell.convention, "selection": {"on": cell.selection}, "labels": FULL,
        "sight": {}, "warnings": [],
    }  # fmt: skip
    write_json(cell.folder / "details.json", details)
    write_json(cell.folder / "metrics.json", dict(cell.metrics))


def write_cells(seed: int, world: int = 0) -> None:
    for name in ("raw", "pjepa"):
        write_cell(a_cell(name, seed, world=world))


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def dvc(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *arguments], check=True, capture_output=True)


def pjepa(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


@pytest.mark.slow
def test_revisions_are_read_with_dvc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`raw` is in the DVC cache, `pjepa` in Git; the project is a folder of its repository."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    git("config", "user.name", "t")
    git("config", "user.email", "t@example.org")
    monkeypatch.chdir("project")
    dvc("init", "-q", "--subdir")
    paths.PARAMS.write_text(PARAMS)
    git("add", ".")
    git("commit", "-qm", "nothing yet")
    write_cells(0)
    dvc("add", "-q", "results/probe/linear-raw")
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "first")
    write_cells(1)
    dvc("add", "-q", "results/probe/linear-raw")
    dvc("exp", "save", "--name", "second")
    write_cells(2)

    found = pjepa("first", "second", "workspace", "--json", "all.json", "--metric", "edit")
    assert found.exit_code == 0, found.output
    assert "mean, min, max over 3: first, second, workspace" in found.output
    numbers = json.loads(Path("all.json").read_text())
    for name in ("raw", "pjepa"):
        wanted = [round(a_cell(name, seed).metrics["edit"], 4) for seed in range(3)]
        assert numbers["arms"][0]["cells"]["linear"][name]["edit"]["values"] == wanted
    assert len({row["commit"] for row in numbers["experiments"]}) == 3

    write_cells(2, world=1)
    (paths.cell("linear", "pjepa") / "metrics.json").write_text("{}")
    errors = {
        ("first", "nowhere"): "nowhere: no such experiment, branch, tag or commit",
        ("first", "HEAD"): "first and HEAD: the same commit",
        ("HEAD~1",): "HEAD~1: results/probe/linear-raw/details.json: cannot be read",
        ("first", "--probe", "fact"): "first: probe 'fact' is not in its `cells`; there: linear",
        ("first", "--metric", "top1"): "metric 'top1': linear cells have acc, ",
        ("workspace",): "workspace: results/probe/linear-pjepa: details.json or metrics.json is ",
    }
    for arguments, text in errors.items():
        refused = pjepa(*arguments)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"error: {text}"), refused.stderr
        assert refused.stderr.count("\n") == 1
    shutil.rmtree(".dvc/cache")
    lost = pjepa("second").stderr
    assert lost.startswith("error: second: results/probe/linear-raw/details.json: cannot be read (")
    assert lost.count("\n") == 1
