"""Experiments pooled: means, spread, paired intervals, refusals, and reading by revision."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from pjepa import paths
from pjepa.cli import app
from pjepa.config.report import ReportConfig
from pjepa.errors import InputError
from pjepa.metrics.bootstrap import difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, TakeStatistics, scores, take_statistics
from pjepa.probes.stored import CellStatistics
from pjepa.report.compare import Comparison, comparison, pooled_cell, unpaired_reason
from pjepa.report.compare_tables import comparison_json, comparison_rows, print_comparison
from pjepa.report.experiments import Experiment
from pjepa.report.results import Cell
from pjepa.streams.schema import Provenance
from pjepa.work import write_json

CONFIG = ReportConfig(bootstrap=60)
TAKES = {f"take-{index}": f"group-{index // 2}" for index in range(8)}
RIGHT = {"raw": 0.3, "segment_mean": 0.5, "history": 0.6, "pjepa": 0.9}  # share of right frames
FULL = {"label_fraction": 1.0, "variant": "honest"}
PARAMS = """
cells: {probes: [linear], representations: [raw, pjepa]}
report: {bootstrap: 60}
"""


def run_statistics(right: float, seed: int, world: int = 0) -> dict[str, TakeStatistics]:
    """One run: every take's labels come from the world, its predictions from the seed."""
    truth, guess = np.random.default_rng([7, world]), np.random.default_rng([8, seed])
    found = {}
    for take in TAKES:
        labels = np.repeat(truth.integers(0, 5, 6), 5)
        kept = guess.random(labels.size) < right
        found[take] = take_statistics(labels, np.where(kept, labels, (labels + 1) % 5), 0)
    return found


def a_cell(representation: str, seed: int, runs: int = 1, world: int = 0) -> Cell:
    variants = [
        run_statistics(RIGHT[representation], 10 * seed + run, world) for run in range(runs)
    ]
    rows = [scores(list(variant.values())) for variant in variants]
    found = intervals(variants, TAKES, CONFIG.bootstrap, CONFIG.seed)
    return Cell(
        probe="linear",
        representation=representation,
        folder=paths.cell("linear", representation),
        metrics={name: float(np.mean([row[name] for row in rows])) for name in METRICS},
        paper={},
        intervals=found,
        statistics=CellStatistics(variants, TAKES),
        streamed={},
        provenance=Provenance(),
        split="test",
        convention="release",
        selection="holdout",
        labels=FULL,
        sight={},
        runs=runs,
        warnings=(),
    )


def an_experiment(seed: int, names: tuple[str, ...] = tuple(RIGHT), world: int = 0) -> Experiment:
    cells = {("linear", name): a_cell(name, seed, world=world) for name in names}
    return Experiment(f"exp-{seed}", f"commit-{seed}", CONFIG, cells)


@pytest.fixture(scope="module")
def three() -> Comparison:
    return comparison([an_experiment(seed) for seed in range(3)])


def changed(cell: Cell, **values: object) -> Cell:
    return replace(cell, **values)  # type: ignore[arg-type]


def test_means_and_spread_are_over_experiments(three: Comparison) -> None:
    cell = three.pooled.cell("linear", "pjepa")
    assert cell is not None
    alone = [a_cell("pjepa", seed).metrics for seed in range(3)]
    for name in METRICS:
        assert cell.metrics[name] == pytest.approx(np.mean([row[name] for row in alone]))
        assert cell.intervals[name].mean == pytest.approx(cell.metrics[name])
    assert three.values(cell, "edit") == [row["edit"] for row in alone]
    row = next(row for row in comparison_rows(three, "linear", "edit") if row[0] == "pjepa")
    values = [metrics["edit"] for metrics in alone]
    assert row[1] == f"{np.mean(values):.1f}"
    assert row[2] == f"{min(values):.1f} to {max(values):.1f}"


def test_intervals_pool_all_runs_and_differences_are_paired(three: Comparison) -> None:
    ours, raw = ([run_statistics(RIGHT[n], 10 * s) for s in range(3)] for n in ("pjepa", "raw"))
    cell, gain = (
        three.pooled.cell("linear", "pjepa"),
        three.pooled.difference("linear", "pjepa", "raw"),
    )
    assert cell is not None
    assert gain is not None
    assert cell.intervals == intervals(ours, TAKES, CONFIG.bootstrap, CONFIG.seed)
    assert gain.intervals == difference_intervals(ours, raw, TAKES, CONFIG.bootstrap, CONFIG.seed)
    found = {difference.name for difference in three.pooled.differences}
    assert found == {f"{a} - {b}" for a in RIGHT for b in RIGHT if a != b and b != "pjepa"}


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_experiment_counts_the_same(runs: list[int]) -> None:
    cells = [a_cell("raw", seed, count) for seed, count in enumerate(runs)]
    pooled = pooled_cell(cells, CONFIG)
    for name in METRICS:
        mean = np.mean([cell.metrics[name] for cell in cells])
        assert pooled.metrics[name] == pytest.approx(mean)
        assert pooled.intervals[name].mean == pytest.approx(mean)
    assert pooled.runs == sum(runs)


def test_only_sure_differences_are_marked(three: Comparison) -> None:
    rows = {row[0]: row for row in comparison_rows(three, "linear", "acc")}
    assert rows["raw"][4] == ""
    assert rows["pjepa"][4].startswith("+")
    for name in RIGHT:
        for place, reference in enumerate(("raw", "segment_mean", "history")):
            difference = three.pooled.difference("linear", name, reference)
            sure = difference is not None and difference.intervals["acc"].excludes_zero
            assert rows[name][4 + place].endswith("*") == sure
    same = {("linear", name): replace(a_cell("raw", 3), representation=name) for name in RIGHT}
    found = comparison([Experiment("same", "c", CONFIG, same)])
    assert not any("*" in text for row in comparison_rows(found, "linear", "acc") for text in row)


def test_two_experiments_are_subtracted(
    three: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    assert three.between == {}
    first, second = an_experiment(0), an_experiment(1)
    found = comparison([first, second])
    a, b = (e.cells["linear", "pjepa"] for e in (first, second))
    wanted = difference_intervals(
        b.statistics.variants, a.statistics.variants, TAKES, CONFIG.bootstrap, CONFIG.seed
    )
    assert found.between["linear", "pjepa"] == wanted
    assert wanted["acc"].mean == pytest.approx(b.metrics["acc"] - a.metrics["acc"])
    print_comparison(found, "acc")
    assert "exp-1 - exp-0" in capsys.readouterr().out


def test_cells_of_some_experiments_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = comparison([an_experiment(0), an_experiment(1, ("raw", "pjepa"))])
    assert [cell.representation for cell in found.pooled.cells] == ["raw", "pjepa"]
    print_comparison(found, "f1_50")
    text = capsys.readouterr().out
    assert "left out, not in all: linear-segment_mean, linear-history" in text
    assert "- history" not in text
    with pytest.raises(InputError, match="exp-0, exp-1: no cell that all of them list"):
        comparison([an_experiment(0, ("raw",)), an_experiment(1, ("pjepa",))])


def test_marks_of_any_experiment_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = an_experiment(0, ("raw",)), an_experiment(1, ("raw",))
    labelled = changed(
        second.cells["linear", "raw"], provenance=Provenance(train_labels=True), selection="test"
    )
    print_comparison(
        comparison([first, replace(second, cells={("linear", "raw"): labelled})]), "acc"
    )
    text = capsys.readouterr().out
    assert "raw†" in text
    assert "chosen on test" in text


def regrouped(cell: Cell, groups: dict[str, str]) -> Cell:
    return changed(cell, statistics=CellStatistics(cell.statistics.variants, groups))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda cell: changed(cell, split="val"), "split test in one, val in the other"),
        (lambda cell: changed(cell, convention="fact"), "convention release in one, fact"),
        (
            lambda cell: regrouped(cell, {**TAKES, "more": "g"}),
            "1 takes in only one of them, such as 'more'",
        ),
        (
            lambda cell: regrouped(cell, {**TAKES, "take-2": "x"}),
            "take 'take-2' in group 'group-1' here, 'x' there",
        ),
        (lambda cell: a_cell("raw", 1, world=1), "other labels of take 'take-0'"),
    ],
)
def test_what_cannot_be_paired_is_refused(other: Callable[[Cell], Cell], reason: str) -> None:
    cell = a_cell("raw", 0)
    assert unpaired_reason(cell, a_cell("raw", 1)) == ""
    assert unpaired_reason(cell, other(cell)).startswith(reason)
    first = an_experiment(0, ("raw",))
    second = Experiment("exp-1", "commit-1", CONFIG, {("linear", "raw"): other(cell)})
    with pytest.raises(InputError, match="exp-0 and exp-1: cannot be paired, linear-raw has"):
        comparison([first, second])


def test_the_same_commit_twice_is_refused() -> None:
    again = replace(an_experiment(0), name="HEAD")
    with pytest.raises(InputError, match="exp-0 and HEAD: the same commit"):
        comparison([an_experiment(0), an_experiment(1), again])


def test_json_holds_every_number(three: Comparison, tmp_path: Path) -> None:
    write_json(tmp_path / "all.json", comparison_json(three))
    found = json.loads((tmp_path / "all.json").read_text())
    assert [e["name"] for e in found["experiments"]] == ["exp-0", "exp-1", "exp-2"]
    assert (found["takes"], found["groups"]) == (8, 4)
    assert set(found["cells"]["linear"]) == set(RIGHT)
    for cell in found["cells"]["linear"].values():
        assert set(cell) == set(METRICS)
        for row in cell.values():
            assert row["mean"] == pytest.approx(np.mean(row["values"]), abs=1e-3)
            assert row["min"] <= row["mean"] <= row["max"]
            assert row["low"] <= row["high"]
    assert len(found["differences"]) == len(three.pooled.differences)
    assert found["differences"][0]["acc"]["excludes_zero"] in (True, False)
    assert found["between"] == []


def write_cell(cell: Cell) -> None:
    """A cell's files as the probe stage writes them, as far as a comparison reads them."""
    rows = [
        {"statistics": {take: row.to_dict() for take, row in variant.items()}}
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


def commit_first(*init: str) -> None:
    """A project at tag `first`: `raw` in the DVC cache, `pjepa` in Git (as with `cache: false`)."""
    dvc("init", "-q", *init)
    paths.PARAMS.write_text(PARAMS)
    git("add", ".")
    git("commit", "-qm", "nothing yet")
    write_cells(0)
    dvc("add", "-q", "results/probe/linear-raw")
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "first")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    git("config", "user.name", "t")
    git("config", "user.email", "t@example.org")
    return tmp_path


def test_the_project_may_be_a_folder_of_its_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "project").mkdir()
    monkeypatch.chdir(repository / "project")
    commit_first("--subdir")
    write_cells(1)
    found = pjepa("first", "workspace")
    assert found.exit_code == 0, found.output
    assert "workspace - first" in found.output


def test_revisions_are_read_with_dvc(repository: Path) -> None:
    commit_first()
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
        assert numbers["cells"]["linear"][name]["edit"]["values"] == wanted
    assert len({row["commit"] for row in numbers["experiments"]}) == 3

    write_cells(2, world=1)
    (paths.cell("linear", "pjepa") / "metrics.json").write_text("{}")
    errors = {
        ("first", "nowhere"): "nowhere: no such experiment, branch, tag or commit",
        ("first", "HEAD"): "first and HEAD: the same commit",
        ("HEAD~1",): "HEAD~1: results/probe/linear-raw/details.json: cannot be read",
        ("first", "--probe", "fact"): "first: probe 'fact' is not in its `cells`; there: linear",
        ("first", "--metric", "top1"): "metric 'top1': linear cells have acc, ",
        ("workspace",): "workspace: results/probe/linear-pjepa: written by another version",
    }
    for arguments, text in errors.items():
        refused = pjepa(*arguments)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"error: {text}"), refused.stderr
        assert refused.stderr.count("\n") == 1
    write_cells(2, world=1)
    assert "cannot be paired, linear-raw has other labels" in pjepa("first", "workspace").stderr
    shutil.rmtree(".dvc/cache")
    lost = pjepa("second").stderr
    assert lost.startswith("error: second: results/probe/linear-raw/details.json: cannot be read (")
    assert lost.count("\n") == 1
