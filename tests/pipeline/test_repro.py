"""A small real `dvc repro` in a copy of the project: what runs, what is skipped, what is shown.

The tests share one copy. Each leaves it as it found it: the committed params and lock, outs in
place. A test may find results of another in the run-cache, which DVC restores without running.
"""

from __future__ import annotations

import csv
import json
import re
import time

import pytest

from pjepa.select.curve import ProbeCurve, write_curve
from tests.pipeline.copies import CELLS, ROOT, Copy, cells, ran

pytestmark = pytest.mark.slow


def test_every_stage_runs_and_writes_its_outs(copy: Copy) -> None:
    stages = set(copy.run("dvc", "stage", "list", "--name-only").split())
    assert set(copy.lock()) == stages
    assert all((copy.folder / path).exists() for path in copy.hashes())
    metrics = json.loads((copy.folder / "results/metrics.json").read_text())
    assert metrics["linear"].keys() >= set(CELLS)


def test_second_repro_does_nothing(copy: Copy) -> None:
    output = copy.run("dvc", "repro")
    assert not ran(output)
    assert "up to date" in output


def test_outs_are_linked_not_copied(copy: Copy) -> None:
    assert (copy.folder / "data/tokens/stream.parquet").stat().st_nlink > 1


def test_no_machine_path_is_recorded(copy: Copy) -> None:
    text = (copy.folder / "dvc.lock").read_text()
    assert str(copy.folder) not in text
    assert str(ROOT) not in text


def test_wrong_parameter_stops_in_one_line(copy: Copy) -> None:
    """Through DVC; tests/config has the messages of every kind of fault."""
    output = copy.run("dvc", "exp", "run", "-S", "+pjepa.mask_ration=0.6", fails=True)
    lines = [line for line in output.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert "pjepa.mask_ration: unknown parameter; did you mean mask_ratio?" in lines[0]
    assert "Traceback" not in output
    assert len(ran(output)) == 1  # the first stage that would have worked, before it did


def test_plots_render_without_internet(copy: Copy) -> None:
    copy.run("dvc", "plots", "show", "--out", "plots")
    page = (copy.folder / "plots/index.html").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//[^"'\s>]+""", page)
    assert page.count("vegaEmbed(") >= 3  # loss and the two collapse monitors
    for name in ("loss", "probe_over_epochs", "progress", "confusion"):
        assert f'id = "{name}"' in page
    assert list((copy.folder / "plots/static").glob("*_timelines_best.png"))
    assert '"epoch": "' not in page  # twelve takes have no hold-out to score on


def test_the_probe_over_epochs_is_drawn(copy: Copy) -> None:
    curve = ProbeCurve({25: 31.5, 50: 38.25}, {"raw": 30.5, "random": 28.0}, 8, 2)
    write_curve(curve, copy.folder / "results/curve")
    copy.run("dvc", "plots", "show", "--out", "plots")
    page = (copy.folder / "plots/index.html").read_text()
    for value in ('"epoch": "50"', '"pjepa": "38.25"', '"raw": "30.5"', '"random": "28.0"'):
        assert value in page


def test_mask_ratio_runs_only_what_reads_the_encoder(copy: Copy) -> None:
    output = copy.run("dvc", "exp", "run", "-S", "pjepa.mask_ratio=0.6")
    encoder = {"pretrain", "select", "curve", "features", "report"}
    assert ran(output) == encoder | cells("pjepa", "pjepa_segment")
    changed = copy.run("git", "diff", "--unified=0", "params.yaml").splitlines()
    assert [line for line in changed if re.match(r"[+-] ", line)] == [
        "-  mask_ratio: 0.8",
        "+  mask_ratio: 0.6",
    ]
    table = copy.run("dvc", "metrics", "diff")
    assert re.search(r"linear\.pjepa\.\w+ +[\d.]+ +[\d.]+ +-?[\d.]+", table), table


def test_adding_a_cell_runs_that_cell(copy: Copy) -> None:
    copy.edit_params({"cells": {"representations": [*CELLS, "smooth"]}})
    assert ran(copy.run("dvc", "repro")) == cells("smooth") | {"report"}
    copy.edit_params({"cells": {"representations": CELLS}})
    assert ran(copy.run("dvc", "repro")) == {"report"}


def test_queued_experiments_run_and_show(copy: Copy) -> None:
    """The last stage alone changes: the queue is what is tried here."""
    copy.run("dvc", "exp", "run", "--queue", "-S", "report.bootstrap=10,30")
    copy.run("dvc", "queue", "start")
    while len(re.findall("Success|Failed", status := copy.run("dvc", "queue", "status"))) < 2:
        time.sleep(2)  # one that is just being started is in no state at all
    assert status.count("Success") == 2, status + copy.run("dvc", "exp", "show")
    shown = csv.DictReader(copy.run("dvc", "exp", "show", "--csv").splitlines())
    assert {"10", "20", "30"} <= {row["report.bootstrap"] for row in shown}
