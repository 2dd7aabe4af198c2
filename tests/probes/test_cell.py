"""A cell's folder: complete, repeatable, and enough for the report without predictions."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pjepa.core.tables import read_takes
from pjepa.core.text import text_of_cell
from pjepa.metrics.bootstrap import difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, TakeStatistics, segmentation_scores
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.scoring import take_roles
from pjepa.probes.linear.probe import LinearProbe, probe_accuracy
from pjepa.report.results import read_cell
from pjepa.streams.stream import StreamReader, StreamWriter, Take, read_labels, write_labels
from pjepa.ui.console import InputError
from tests.probes.world import COMMON, FPS, LINEAR, NAMES, WIDTH, takes_rows, world


def cell(folder: Path, out: str = "out", **options: int) -> tuple[Path, dict[str, float]]:
    inputs = world(folder, **options)
    return folder / out, run_cell(inputs, folder / out, "linear", "raw", COMMON, LINEAR)


def test_folder_is_complete(tmp_path: Path) -> None:
    out, metrics = cell(tmp_path)
    assert json.loads((out / "metrics.json").read_text()) == metrics
    names = (*METRICS, "top1")
    assert set(metrics) == {*names, *(f"paper_{name}" for name in names)}
    details = json.loads((out / "details.json").read_text())
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
    assert LinearProbe.load(out / "model").weight.shape == (4, WIDTH)


def test_predictions_give_the_metrics(tmp_path: Path) -> None:
    out, metrics = cell(tmp_path)
    frame = pq.read_table(out / "predictions.parquet").to_pandas()
    assert list(frame.columns) == ["take_id", "time_s", "label", "prediction", "score"]
    parts = [part for _, part in frame.groupby("take_id", sort=False)]
    truths, predictions = ([p[c].to_numpy() for p in parts] for c in ("label", "prediction"))
    again = segmentation_scores(truths, predictions, 0)
    assert {name: metrics[name] for name in METRICS} == pytest.approx(again)
    probe, reader = LinearProbe.load(out / "model"), StreamReader(tmp_path / "stream.parquet")
    best = probe.predict(reader.read("take 10").features).argmax(1)
    np.testing.assert_array_equal(best, parts[0]["prediction"])


def test_segments_cover_every_take_and_survive_any_name(tmp_path: Path) -> None:
    out, _ = cell(tmp_path)
    with (out / "segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {text_of_cell(row["label"]) for row in rows} <= set(NAMES)
    for take in {row["take"] for row in rows}:
        mine = [row for row in rows if row["take"] == take]
        assert float(mine[0]["start"]) == 0
        assert float(mine[-1]["end"]) == 10
        for left, right in itertools.pairwise(mine):
            assert left["end"] == right["start"]
            assert left["label"] != right["label"]


def test_report_needs_no_predictions(tmp_path: Path) -> None:
    out, metrics = cell(tmp_path)
    stored = read_cell("linear", "x", out).statistics
    found = intervals(stored.variants, stored.groups, COMMON.bootstrap, COMMON.seed)["f1_25"]
    details = json.loads((out / "details.json").read_text())
    assert found.mean == pytest.approx(metrics["f1_25"])
    assert details["intervals"]["converged"]["f1_25"]["low"] == pytest.approx(found.low)
    paper = [
        {take: TakeStatistics.from_dict(row) for take, row in run["statistics"].items()}
        for run in details["runs"]["paper"]
    ]
    gain = difference_intervals(stored.variants, paper, stored.groups, 50, 0)["acc"]
    assert gain.mean == pytest.approx(metrics["acc"] - metrics["paper_acc"])


def test_variants_are_averaged(tmp_path: Path) -> None:
    out, metrics = cell(tmp_path, variants=3)
    details = json.loads((out / "details.json").read_text())
    values = [run["metrics"]["acc"] for run in details["runs"]["converged"]]
    assert len(set(values)) > 1
    assert metrics["acc"] == pytest.approx(np.mean(values))
    assert details["intervals"]["converged"]["acc"]["mean"] == pytest.approx(metrics["acc"])


def test_val_is_reported_where_test_has_no_labels(tmp_path: Path) -> None:
    out, _ = cell(tmp_path, test_labels=False)
    assert json.loads((out / "details.json").read_text())["split"] == "val"


def test_same_input_same_bytes(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    for name in ("a", "b"):
        run_cell(inputs, tmp_path / name, "linear", "raw", COMMON, LINEAR)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 8
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_warns_when_the_fits_disagree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, metrics = cell(tmp_path)
    assert abs(metrics["acc"] - metrics["paper_acc"]) > 3
    warnings = json.loads((out / "details.json").read_text())["warnings"]
    assert "differ by" in warnings[0]
    assert warnings[0] in capsys.readouterr().err


def test_any_target_can_be_read(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    reader, labels = StreamReader(inputs.streams[0]), read_labels(inputs.labels)
    halves = {take: np.where(y < 0, -1, y // 2).astype(np.int32) for take, y in labels.items()}

    def features(take: str) -> np.ndarray:
        return reader.read(take).features

    accuracy = probe_accuracy(features, halves, read_takes(inputs.takes), COMMON, LINEAR)
    assert 60 < accuracy <= 100


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    empty = CellInputs([], inputs.labels, inputs.takes, inputs.classes)
    with pytest.raises(InputError, match="no stream"):
        run_cell(empty, tmp_path / "out", "linear", "raw", COMMON, LINEAR)
    labels = read_labels(inputs.labels)
    short = [(take, np.arange(39.0), label[:39]) for take, label in labels.items()]
    write_labels(inputs.labels, short)
    with pytest.raises(InputError, match="40 tokens but 39 labels"):
        run_cell(inputs, tmp_path / "out", "linear", "raw", COMMON, LINEAR)
    with pytest.raises(InputError, match="no train take"):
        take_roles(pd.DataFrame(takes_rows()), {})


def test_gaps_in_time_end_segments(tmp_path: Path) -> None:
    inputs = world(tmp_path)
    reader = StreamReader(inputs.streams[0])
    gapped = tmp_path / "gapped.parquet"
    with StreamWriter(gapped, reader.info) as writer:
        for take_id in reader.takes:
            take = reader.read(take_id)
            times = take.times + np.where(np.arange(40) >= 23, 100.0, 0.0)
            writer.write(Take(take_id, take.features, times, take.segment, take.offset))
    whole = CellInputs([gapped], inputs.labels, inputs.takes, inputs.classes)
    run_cell(whole, tmp_path / "out", "linear", "raw", COMMON, LINEAR)
    with (tmp_path / "out" / "segments.csv").open(newline="") as file:
        rows = [(float(row["start"]), float(row["end"])) for row in csv.DictReader(file)]
    assert sum(end - start for start, end in rows) == pytest.approx(4 * 40 / FPS)
    assert all(end <= 5.75 or start >= 105.75 for start, end in rows)
