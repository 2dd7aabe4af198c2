"""A cell's folder: complete, repeatable, and enough for the report without predictions."""

import csv
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pjepa.core import machine
from pjepa.core.tables import read_takes
from pjepa.core.text import text_of_cell
from pjepa.metrics.bootstrap import difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, TakeStatistics, segmentation_scores
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.scoring import take_roles
from pjepa.probes.linear.probe import LinearProbe, probe_accuracy
from pjepa.report.results import read_cell
from pjepa.streams.stream import StreamReader, StreamWriter, Take, read_labels, write_labels
from pjepa.ui.console import InputError
from tests.probes.world import COMMON, FPS, LINEAR, NAMES, takes_rows, world


@dataclass(frozen=True)
class Cell:
    """A cell of the linear probe that has run."""

    inputs: CellInputs
    out: Path
    metrics: dict[str, float]
    details: dict[str, Any]


def run(inputs: CellInputs, out: Path, common: ProbeCommonConfig = COMMON) -> Cell:
    metrics = run_cell(inputs, out, "linear", "raw", common, LINEAR)
    return Cell(inputs, out, metrics, json.loads((out / "details.json").read_text()))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    folder = tmp_path_factory.mktemp("cell")
    return run(world(folder), folder / "out")


def test_folder_is_complete(cell: Cell) -> None:
    assert json.loads((cell.out / "metrics.json").read_text()) == cell.metrics
    names = (*METRICS, "top1")
    assert set(cell.metrics) == {*names, *(f"paper_{name}" for name in names)}
    details = cell.details
    assert details["split"] == "test"
    assert details["provenance"]["lookahead_s"] == 2
    assert details["takes"] == {"fit": 6, "holdout": 2, "reported": 4}
    assert set(details["conventions"]) == {"mstcn", "ltcontext", "fact", "release"}
    assert details["fits"] == ["converged", "paper"]
    assert details["runs"]["converged"][0]["fit"]["l2"] in LINEAR.l2
    assert details["selection"] == {"on": "holdout", "on_reported": False}
    assert details["labels"]["variant"] == "full"
    assert details["settings"]["linear"]["l2"] == list(LINEAR.l2)
    assert details["settings"]["common"]["device"] == "cpu"
    assert details["sight"] == {"to": "token", "whole_take": False, "lookahead_s": 0.0}
    assert abs(cell.metrics["acc"] - cell.metrics["paper_acc"]) > 3
    assert "differ by" in details["warnings"][0]


def test_predictions_give_the_metrics(cell: Cell) -> None:
    frame = pq.read_table(cell.out / "predictions.parquet").to_pandas()
    assert list(frame.columns) == ["take_id", "time_s", "label", "prediction", "score"]
    parts = [part for _, part in frame.groupby("take_id", sort=False)]
    truths, predictions = ([p[c].to_numpy() for p in parts] for c in ("label", "prediction"))
    again = segmentation_scores(truths, predictions, 0)
    assert {name: cell.metrics[name] for name in METRICS} == pytest.approx(again)
    probe, reader = LinearProbe.load(cell.out / "model"), StreamReader(cell.inputs.streams[0])
    best = probe.predict(reader.read("take 10").features).argmax(1)
    np.testing.assert_array_equal(best, parts[0]["prediction"])


def test_segments_cover_every_take_and_survive_any_name(cell: Cell) -> None:
    with (cell.out / "segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {text_of_cell(row["label"]) for row in rows} <= set(NAMES)
    for take in {row["take"] for row in rows}:
        mine = [row for row in rows if row["take"] == take]
        assert float(mine[0]["start"]) == 0
        assert float(mine[-1]["end"]) == 10
        for left, right in itertools.pairwise(mine):
            assert left["end"] == right["start"]
            assert left["label"] != right["label"]


def test_report_needs_no_predictions(cell: Cell) -> None:
    stored = read_cell("linear", "x", cell.out).statistics
    found = intervals(stored.variants, stored.groups, COMMON.bootstrap, COMMON.seed)["f1_25"]
    assert found.mean == pytest.approx(cell.metrics["f1_25"])
    assert cell.details["intervals"]["converged"]["f1_25"]["low"] == pytest.approx(found.low)
    paper = [
        {take: TakeStatistics.from_dict(row) for take, row in run["statistics"].items()}
        for run in cell.details["runs"]["paper"]
    ]
    gain = difference_intervals(stored.variants, paper, stored.groups, 50, 0)["acc"]
    assert gain.mean == pytest.approx(cell.metrics["acc"] - cell.metrics["paper_acc"])


def test_variants_and_seeds_are_averaged(tmp_path: Path) -> None:
    common = COMMON.model_copy(update={"seeds": (0, 1, 2)})
    cell = run(world(tmp_path, variants=2), tmp_path / "out", common)
    runs = cell.details["runs"]
    assert [run["seed"] for run in runs["converged"]] == [None, None]  # the optimum draws nothing
    assert len(runs["paper"]) == 6
    for fit, prefix in (("converged", ""), ("paper", "paper_")):
        values = [run["metrics"]["acc"] for run in runs[fit]]
        assert len(set(values)) > 1
        assert cell.metrics[f"{prefix}acc"] == pytest.approx(np.mean(values))
        assert cell.details["intervals"][fit]["acc"]["mean"] == pytest.approx(np.mean(values))


def test_val_is_reported_where_test_has_no_labels(tmp_path: Path) -> None:
    assert run(world(tmp_path, test_labels=False), tmp_path / "out").details["split"] == "val"


def test_same_input_same_bytes_also_from_two_fits_at_once(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 2)
    run(cell.inputs, tmp_path, COMMON.model_copy(update={"workers": 2}))
    files = sorted(path.relative_to(cell.out) for path in cell.out.rglob("*.*"))
    assert len(files) == 8
    for file in files:
        assert (cell.out / file).read_bytes() == (tmp_path / file).read_bytes()


def test_any_target_can_be_read(cell: Cell) -> None:
    reader, labels = StreamReader(cell.inputs.streams[0]), read_labels(cell.inputs.labels)
    halves = {take: np.where(y < 0, -1, y // 2).astype(np.int32) for take, y in labels.items()}
    takes = read_takes(cell.inputs.takes)
    accuracy = probe_accuracy(lambda t: reader.read(t).features, halves, takes, COMMON, LINEAR)
    assert 60 < accuracy <= 100


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    with pytest.raises(InputError, match="representation raw: no stream found"):
        run(replace(inputs, streams=[]), tmp_path / "out")
    labels = read_labels(inputs.labels)
    short = [(take, np.arange(39.0), label[:39]) for take, label in labels.items()]
    write_labels(inputs.labels, short)
    with pytest.raises(InputError, match="40 tokens but 39 labels"):
        run(inputs, tmp_path / "out")
    with pytest.raises(InputError, match="no train take"):
        take_roles(pd.DataFrame(takes_rows()), {})


def test_gaps_in_time_end_segments(cell: Cell, tmp_path: Path) -> None:
    reader, gapped = StreamReader(cell.inputs.streams[0]), tmp_path / "gapped.parquet"
    with StreamWriter(gapped, reader.info) as writer:
        for take in reader.read_many():
            times = take.times + np.where(np.arange(40) >= 23, 100.0, 0.0)
            writer.write(Take(take.take_id, take.features, times, take.segment, take.offset))
    run(replace(cell.inputs, streams=[gapped]), tmp_path / "out")
    with (tmp_path / "out" / "segments.csv").open(newline="") as file:
        rows = [(float(row["start"]), float(row["end"])) for row in csv.DictReader(file)]
    assert sum(end - start for start, end in rows) == pytest.approx(4 * 40 / FPS)
    assert all(end <= 5.75 or start >= 105.75 for start, end in rows)
