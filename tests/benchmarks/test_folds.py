from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.folds import check_first_run, differences, pooled
from pjepa.metrics.segmentation import take_statistics


def details(takes, wrong):
    """A cell on some takes of 20 tokens, the first `wrong` of which are predicted falsely."""
    truth = np.repeat([1, 2], 10)
    predicted = truth.copy()
    predicted[:wrong] = 3
    rows = {take: asdict(take_statistics(truth, predicted, None)) for take in takes}
    return {"fits": ["converged"], "runs": {"converged": [{"statistics": rows}]},
            "groups": {take: take[0] for take in takes}}  # fmt: skip


def test_takes_of_all_folds_are_scored_together():
    ours = pooled([[details(("a1", "a2"), 0)], [details(("b1",), 10)]])
    raw = pooled([[details(("a1", "a2"), 5)], [details(("b1",), 10)]])
    assert sorted(ours.variants[0]) == ["a1", "a2", "b1"]
    assert ours.groups == {"a1": "a", "a2": "a", "b1": "b"}
    found = differences({"linear pjepa": ours, "linear raw": raw})
    assert list(found) == ["linear pjepa - raw"]
    assert found["linear pjepa - raw"].mean == pytest.approx(100 * 10 / 60)


def test_a_clone_without_a_run_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="run `dvc repro` first"):
        check_first_run()
    (tmp_path / "results/report").mkdir(parents=True)
    (tmp_path / "results/report/report.json").write_text("{}")
    check_first_run()
