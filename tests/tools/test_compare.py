"""Experiments pooled: means, spread, paired intervals, refusals."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.metrics.bootstrap import FEWEST, difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, TakeStatistics, scores, take_statistics
from pjepa.report.config import ReportConfig
from pjepa.report.results import Cell, CellStatistics
from pjepa.storage.writing import write_json
from pjepa.streams.provenance import Provenance
from pjepa.tools import paths
from pjepa.tools.compare.compare import (
    Comparison,
    comparison,
    params_table,
    pooled_cell,
    unpaired_reason,
)
from pjepa.tools.compare.experiments import Experiment
from pjepa.tools.compare.tables import comparison_json, comparison_rows, print_comparison
from pjepa.ui.console import InputError

CONFIG = ReportConfig(bootstrap=60)
TAKES = {f"take-{index:02d}": f"group-{index // 2}" for index in range(16)}
RIGHT = {"raw": 0.3, "segment_mean": 0.5, "history": 0.6, "pjepa": 0.9}  # share of right frames
FULL = {"label_fraction": 1.0, "variant": "honest"}


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
        readings={},
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


def test_few_groups_make_no_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    few = {take: group for take, group in TAKES.items() if int(group[-1]) < FEWEST - 1}

    def only_few(cell: Cell) -> Cell:
        variants = [{take: row[take] for take in few} for row in cell.statistics.variants]
        return changed(cell, statistics=CellStatistics(variants, few))

    runs = [an_experiment(seed) for seed in range(2)]
    runs = [replace(r, cells={k: only_few(c) for k, c in r.cells.items()}) for r in runs]
    found = comparison(runs)
    gain = found.pooled.difference("linear", "pjepa", "raw")
    assert gain is not None
    assert gain.intervals["acc"].low > 0
    assert not gain.intervals["acc"].excludes_zero
    print_comparison(found, "acc")
    text = capsys.readouterr().out
    assert "5 groups: no interval" in text
    assert "5 groups are too few for intervals (at least 6)" in text
    assert "*" not in text


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
            lambda cell: regrouped(cell, {**TAKES, "take-02": "x"}),
            "take 'take-02' in group 'group-1' here, 'x' there",
        ),
        (lambda cell: a_cell("raw", 1, world=1), "other labels of take 'take-00'"),
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
    assert (found["takes"], found["groups"]) == (16, 8)
    (arm,) = found["arms"]
    assert arm["experiments"] == ["exp-0", "exp-1", "exp-2"]
    assert set(arm["cells"]["linear"]) == set(RIGHT)
    for cell in arm["cells"]["linear"].values():
        assert set(cell) == set(METRICS)
        for row in cell.values():
            assert row["mean"] == pytest.approx(np.mean(row["values"]), abs=1e-3)
            assert row["min"] <= row["mean"] <= row["max"]
            assert row["low"] <= row["high"]
    assert len(arm["differences"]) == len(three.pooled.differences)
    assert arm["differences"][0]["acc"]["excludes_zero"] in (True, False)
    assert found["between"] == []


def with_params(experiment: Experiment, **params: dict[str, object]) -> Experiment:
    return replace(experiment, params=params)


def test_only_runs_of_the_same_settings_are_averaged(capsys: pytest.CaptureFixture[str]) -> None:
    """Two mask ratios with two seeds each: two arms, and their difference."""
    plan = [(0.6, 0), (0.6, 1), (0.8, 0), (0.8, 1)]
    runs = [
        with_params(an_experiment(k), pjepa={"mask_ratio": ratio, "seed": seed}, machine={"w": k})
        for k, (ratio, seed) in enumerate(plan)
    ]
    found = comparison(runs)
    assert [arm.name for arm in found.arms] == ["exp-0, exp-1", "exp-2, exp-3"]
    cell = found.arms[1].pooled.cell("linear", "pjepa")
    assert cell is not None
    alone = [a_cell("pjepa", seed).metrics["acc"] for seed in (2, 3)]
    assert cell.metrics["acc"] == pytest.approx(np.mean(alone))
    first = found.arms[0].pooled.cell("linear", "pjepa")
    assert first is not None
    gain = found.between["linear", "pjepa"]["acc"]
    assert gain.mean == pytest.approx(cell.metrics["acc"] - first.metrics["acc"])
    print_comparison(found, "acc")
    text = capsys.readouterr().out
    assert text.startswith("parameters that differ")
    assert re.search(r"pjepa.mask_ratio +0.6 +0.6 +0.8 +0.8\n", text)
    assert "exp-2, exp-3 - exp-0, exp-1" in text
    other = [with_params(run, data={"seed": k}) for k, run in enumerate(runs)]
    assert len(comparison(other).arms) == 4  # the seed of the data draws other splits


def folded(fold: int, seed: int = 0, ratio: float = 0.8) -> Experiment:
    """An experiment that tests four of the eight groups."""
    whole = with_params(
        an_experiment(10 * seed + fold, ("raw", "pjepa")),
        data={"fold": fold}, pjepa={"seed": seed, "mask_ratio": ratio},
    )  # fmt: skip
    mine = {take: group for take, group in TAKES.items() if int(group[-1]) // 4 == fold - 1}
    cells = {}
    for key, cell in whole.cells.items():
        variants = [{take: row[take] for take in mine} for row in cell.statistics.variants]
        metrics = scores(list(variants[0].values()))
        cells[key] = changed(cell, statistics=CellStatistics(variants, mine), metrics=metrics)
    name = f"{whole.name}-{ratio:g}"
    return replace(whole, name=name, commit=name, cells=cells)


def test_folds_are_averaged(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [folded(fold, seed) for seed in (0, 1) for fold in (1, 2)]
    found = comparison(runs)
    (arm,) = found.arms
    cell = arm.pooled.cell("linear", "pjepa")
    assert cell is not None
    for name in METRICS:
        values = [run.cells["linear", "pjepa"].metrics[name] for run in runs]
        assert cell.metrics[name] == pytest.approx(np.mean(values))
    assert cell.statistics.groups == TAKES  # every take is tested in one fold
    assert found.between == {}
    print_comparison(found, "acc")
    assert "mean, min, max over 4, folds 1, 2: exp-1-0.8, exp-2-0.8" in capsys.readouterr().out
    two = comparison([*runs, *(folded(fold, 0, 0.6) for fold in (1, 2))])
    assert len(two.arms) == 2
    assert set(two.between) == {("linear", "raw"), ("linear", "pjepa")}
    with pytest.raises(InputError, match=r"settings with other folds \(data.fold 1, 2; 1\)"):
        comparison([*runs, folded(1, 0, 0.6)])
    same = replace(folded(2), params={"data": {"fold": 3}}, name="again", commit="again")
    with pytest.raises(InputError, match=r"has take 'take-08' in the test of both folds"):
        comparison([folded(1), folded(2), same])


def test_another_device_is_a_difference_that_is_shown() -> None:
    here = an_experiment(0)
    assert params_table([here, an_experiment(1)]) == []
    cells = {
        key: changed(cell, provenance=Provenance(devices=("cuda",)))
        for key, cell in here.cells.items()
    }
    assert params_table([here, replace(here, cells=cells)]) == [
        ["computed on", "not recorded", "cuda"]
    ]
