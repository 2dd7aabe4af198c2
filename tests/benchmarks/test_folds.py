from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.folds import (
    between,
    check_first_run,
    differences,
    experiment_command,
    pooled,
)
from pjepa.metrics.segmentation import take_statistics


def details(takes, wrong, runs=1):
    """A cell on some takes of 20 tokens, the first `wrong` of which are predicted falsely."""
    truth = np.repeat([1, 2], 10)
    predicted = truth.copy()
    predicted[:wrong] = 3
    rows = {take: asdict(take_statistics(truth, predicted, None)) for take in takes}
    return {"fits": ["converged"], "runs": {"converged": [{"statistics": rows}] * runs},
            "groups": {take: take[0] for take in takes}}  # fmt: skip


def test_takes_of_all_folds_are_scored_together():
    ours = pooled([[details(("a1", "a2"), 0)], [details(("b1",), 10)]])
    raw = pooled([[details(("a1", "a2"), 5)], [details(("b1",), 10)]])
    assert sorted(ours.variants[0]) == ["a1", "a2", "b1"]
    assert ours.groups == {"a1": "a", "a2": "a", "b1": "b"}
    found = differences({"linear pjepa": ours, "linear raw": raw})
    assert list(found) == ["linear pjepa - raw"]
    assert found["linear pjepa - raw"].mean == pytest.approx(100 * 10 / 60)


def test_seeds_become_variants_and_settings_are_paired():
    two = pooled([[details(("a1",), 0), details(("a1",), 4)], [details(("b1",), 0)] * 2])
    one = pooled([[details(("a1",), 4)], [details(("b1",), 4)]])
    assert len(two.variants) == 2
    found = between({"params": {"linear pjepa": two}, "eq2": {"linear pjepa": one}})
    assert found["linear pjepa: params - eq2"].mean == pytest.approx(15.0)


def test_an_experiment_brings_the_list_of_files_and_runs_cells_only():
    command = experiment_command("folds-a-1-0", ["data.fold=1"])
    assert command[command.index("--copy-paths") + 1] == "data/sources/demo.json"
    assert command[-3:] == ["-S", "data.fold=1", "probe"]


def test_a_clone_without_a_run_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="run `dvc repro` first"):
        check_first_run()
    (tmp_path / "results/report").mkdir(parents=True)
    (tmp_path / "results/report/report.json").write_text("{}")
    check_first_run()
