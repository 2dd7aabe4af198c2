"""Experiments pooled: means, spread, paired intervals, refusals."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pjepa.metrics.bootstrap import FEWEST, difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, TakeStatistics, scores, take_statistics
from pjepa.report.config import ReportConfig
from pjepa.report.results import Cell, CellStatistics
from pjepa.report.tables import rounded
from pjepa.streams.provenance import Provenance
from pjepa.tools import paths
from pjepa.tools.compare.compare import (
    Comparison,
    compare_experiments,
    comparison_json,
    comparison_rows,
    pooled_cell,
    print_comparison,
)
from pjepa.tools.compare.experiments import Experiment
from pjepa.ui.console import InputError

CONFIG = ReportConfig(bootstrap=60)
TAKES = {f"take-{index:02d}": f"group-{index // 2}" for index in range(16)}
RIGHT = {"raw": 0.3, "segment_mean": 0.5, "history": 0.6, "pjepa": 0.9}  # share of right frames
FULL = {"label_fraction": 1.0, "variant": "honest"}
Capture = pytest.CaptureFixture[str]


def run_statistics(right: float, seed: int, world: int = 0) -> dict[str, TakeStatistics]:
    """One run: every take's labels come from the world, its predictions from the seed."""
    truth, guess = np.random.default_rng([7, world]), np.random.default_rng([8, seed])
    found = {}
    for take in TAKES:
        labels = np.repeat(truth.integers(0, 5, 6), 5)
        kept = guess.random(labels.size) < right
        found[take] = take_statistics(labels, np.where(kept, labels, (labels + 1) % 5), 0)
    return found


def a_cell(name: str, seed: int, runs: int = 1, world: int = 0) -> Cell:
    variants = [run_statistics(RIGHT[name], 10 * seed + run, world) for run in range(runs)]
    rows = [scores(list(variant.values())) for variant in variants]
    return Cell(
        probe="linear",
        representation=name,
        folder=paths.cell("linear", name),
        metrics={name: float(np.mean([row[name] for row in rows])) for name in METRICS},
        paper={},
        intervals=intervals(variants, TAKES, CONFIG.bootstrap, CONFIG.seed),
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


def an_experiment(
    seed: int, names: tuple[str, ...] = tuple(RIGHT), world: int = 0, **params: Any
) -> Experiment:
    cells = {("linear", name): a_cell(name, seed, world=world) for name in names}
    return Experiment(f"exp-{seed}", f"commit-{seed}", CONFIG, cells, params)


def with_cells(experiment: Experiment, **values: Any) -> Experiment:
    """The experiment, all its cells changed."""
    cells = {key: replace(cell, **values) for key, cell in experiment.cells.items()}
    return replace(experiment, cells=cells)


def regrouped(experiment: Experiment, groups: dict[str, str]) -> Experiment:
    """The experiment on the takes of these groups."""
    cells = {}
    for key, cell in experiment.cells.items():
        runs = [{t: row[t] for t in groups if t in row} for row in cell.statistics.variants]
        metrics = scores(list(runs[0].values()))
        cells[key] = replace(cell, statistics=CellStatistics(runs, groups), metrics=metrics)
    return replace(experiment, cells=cells)


@pytest.fixture(scope="module")
def three() -> Comparison:
    return compare_experiments([an_experiment(seed) for seed in range(3)])


def test_means_and_spread_are_over_experiments(three: Comparison) -> None:
    found = comparison_json(three)
    (arm,) = found["arms"]
    assert (found["takes"], found["groups"], found["between"]) == (16, 8, [])
    assert len(arm["differences"]) == sum(a != b for a in RIGHT for b in RIGHT if b != "pjepa")
    for name in METRICS:
        row = arm["cells"]["linear"]["pjepa"][name]
        assert row["values"] == rounded([a_cell("pjepa", seed).metrics[name] for seed in range(3)])
        assert row["mean"] == pytest.approx(np.mean(row["values"]), abs=1e-3)
        assert row["low"] <= row["mean"] <= row["high"]
    edit = arm["cells"]["linear"]["pjepa"]["edit"]
    row = next(row for row in comparison_rows(three, "linear", "edit") if row[0] == "pjepa")
    assert row[1:3] == [f"{edit['mean']:.1f}", f"{edit['min']:.1f} to {edit['max']:.1f}"]


def test_intervals_pool_all_runs_and_differences_are_paired(three: Comparison) -> None:
    ours, raw = ([run_statistics(RIGHT[n], 10 * s) for s in range(3)] for n in ("pjepa", "raw"))
    cell = three.pooled.cell("linear", "pjepa")
    gain = three.pooled.difference("linear", "pjepa", "raw")
    assert cell.intervals == intervals(ours, TAKES, CONFIG.bootstrap, CONFIG.seed)
    assert gain.intervals == difference_intervals(ours, raw, TAKES, CONFIG.bootstrap, CONFIG.seed)
    rows = {row[0]: row for row in comparison_rows(three, "linear", "acc")}
    assert rows["raw"][4] == ""
    for name in RIGHT:
        for column, reference in enumerate(("raw", "segment_mean", "history"), 4):
            difference = three.pooled.difference("linear", name, reference)
            sure = difference is not None and difference.intervals["acc"].excludes_zero
            assert rows[name][column].endswith("*") == sure


def test_every_experiment_counts_the_same() -> None:
    """However many runs its cell has."""
    cells = [a_cell("raw", seed, count) for seed, count in enumerate((1, 4, 2))]
    pooled = pooled_cell([cells], CONFIG)
    for name in METRICS:
        mean = np.mean([cell.metrics[name] for cell in cells])
        assert pooled.metrics[name] == pytest.approx(mean)
        assert pooled.intervals[name].mean == pytest.approx(mean)
    assert pooled.runs == 7


def test_few_groups_make_no_intervals(capsys: Capture) -> None:
    few = {take: group for take, group in TAKES.items() if int(group[-1]) < FEWEST - 1}
    found = compare_experiments([regrouped(an_experiment(seed), few) for seed in range(2)])
    gain = found.pooled.difference("linear", "pjepa", "raw")
    assert gain.intervals["acc"].low > 0
    assert not gain.intervals["acc"].excludes_zero
    print_comparison(found, "acc")
    text = capsys.readouterr().out
    assert "5 groups: no interval" in text
    assert "5 groups are too few for intervals (at least 6)" in text
    assert "*" not in text


def test_two_experiments_are_subtracted_and_what_differs_is_said(capsys: Capture) -> None:
    labelled = {"provenance": Provenance(train_labels=True, devices=("cuda",)), "selection": "test"}
    first, second = an_experiment(0), with_cells(an_experiment(1, ("raw", "pjepa")), **labelled)
    found = compare_experiments([first, second])
    a, b = (e.cells["linear", "pjepa"].statistics.variants for e in (first, second))
    wanted = difference_intervals(b, a, TAKES, CONFIG.bootstrap, CONFIG.seed)
    assert found.between["linear", "pjepa"] == wanted
    print_comparison(found, "acc")
    text = capsys.readouterr().out
    assert re.search(r"computed on +not recorded +cuda", text)
    left_out = "left out, not in all: linear-segment_mean, linear-history"
    for said in ("exp-1 - exp-0", "raw†", "chosen on test", left_out):
        assert said in text
    assert "- history" not in text
    with pytest.raises(InputError, match="exp-0, exp-1: no cell that all of them list"):
        compare_experiments([an_experiment(0, ("raw",)), an_experiment(1, ("pjepa",))])


RAW = an_experiment(1, ("raw",))
REFUSED = {
    "cannot be paired, linear-raw has split test in one, val": with_cells(RAW, split="val"),
    "has convention release in one, fact": with_cells(RAW, convention="fact"),
    "has 1 takes in only one of them, such as 'more'": regrouped(RAW, {**TAKES, "more": "g"}),
    "has take 'take-02' in group 'group-1' here, 'x'": regrouped(RAW, {**TAKES, "take-02": "x"}),
    "has other labels of take 'take-00'": an_experiment(1, ("raw",), world=1),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_paired_is_refused(reason: str) -> None:
    with pytest.raises(InputError, match=f"exp-0 and exp-1: .*{reason}"):
        compare_experiments([an_experiment(0, ("raw",)), REFUSED[reason]])


def test_seeds_are_averaged_and_settings_stand_apart(capsys: Capture) -> None:
    plan = [(0.6, 0), (0.6, 1), (0.8, 0), (0.8, 1)]
    runs = [
        an_experiment(k, pjepa={"mask_ratio": ratio, "seed": seed}, machine={"w": k})
        for k, (ratio, seed) in enumerate(plan)
    ]
    found = compare_experiments(runs)
    assert [arm.name for arm in found.arms] == ["exp-0, exp-1", "exp-2, exp-3"]
    first, second = (arm.pooled.cell("linear", "pjepa") for arm in found.arms)
    alone = [a_cell("pjepa", seed).metrics["acc"] for seed in (2, 3)]
    assert second.metrics["acc"] == pytest.approx(np.mean(alone))
    gain = found.between["linear", "pjepa"]["acc"]
    assert gain.mean == pytest.approx(second.metrics["acc"] - first.metrics["acc"])
    print_comparison(found, "acc")
    text = capsys.readouterr().out
    assert text.startswith("parameters that differ")
    assert re.search(r"pjepa.mask_ratio +0.6 +0.6 +0.8 +0.8\n", text)
    assert "exp-2, exp-3 - exp-0, exp-1" in text
    other = [replace(run, params={"data": {"seed": k}}) for k, run in enumerate(runs)]
    assert len(compare_experiments(other).arms) == 4  # the seed of the data draws other splits


def folded(fold: int, seed: int = 0, ratio: float = 0.8) -> Experiment:
    """An experiment that tests four of the eight groups."""
    params = {"data": {"fold": fold}, "pjepa": {"seed": seed, "mask_ratio": ratio}}
    whole = an_experiment(10 * seed + fold, ("raw", "pjepa"), **params)
    mine = {take: group for take, group in TAKES.items() if int(group[-1]) // 4 == fold - 1}
    name = f"{whole.name}-{ratio:g}"
    return replace(regrouped(whole, mine), name=name, commit=name)


def test_folds_are_averaged(capsys: Capture) -> None:
    runs = [folded(fold, seed) for seed in (0, 1) for fold in (1, 2)]
    found = compare_experiments(runs)
    (arm,) = found.arms
    cell = arm.pooled.cell("linear", "pjepa")
    for name in METRICS:
        values = [run.cells["linear", "pjepa"].metrics[name] for run in runs]
        assert cell.metrics[name] == pytest.approx(np.mean(values))
    assert cell.statistics.groups == TAKES  # every take is tested in one fold
    assert found.between == {}
    print_comparison(found, "acc")
    assert "mean, min, max over 4, folds 1, 2: exp-1-0.8, exp-2-0.8" in capsys.readouterr().out
    two = compare_experiments([*runs, *(folded(fold, 0, 0.6) for fold in (1, 2))])
    assert len(two.arms) == 2
    assert set(two.between) == {("linear", "raw"), ("linear", "pjepa")}
    with pytest.raises(InputError, match=r"settings with other folds \(data.fold 1, 2; 1\)"):
        compare_experiments([*runs, folded(1, 0, 0.6)])
    same = replace(folded(2), params={"data": {"fold": 3}}, name="again", commit="again")
    with pytest.raises(InputError, match=r"has take 'take-08' in the test of both folds"):
        compare_experiments([folded(1), folded(2), same])
