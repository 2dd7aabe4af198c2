"""A small real `dvc repro` in a copy of the project: what runs, what is skipped, what is equal.

The tests share one copy. Each leaves it as it found it: the committed params and lock, outs in
place. A test may find results of another in the run-cache, which DVC restores without running.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from pjepa.select.curve import ProbeCurve, write_curve
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CELLS = ["raw", "pjepa", "pjepa_segment", "random"]
SMALL: dict[str, dict[str, Any]] = {
    "": {"threads": 1},
    "data.demo": {"takes": 12, "min_s": 12.0, "max_s": 16.0, "video_size": 64},
    "patches": {"crop": 32, "grid": 1},
    "pooler": {"kind": "mean", "epochs": 2},
    "pjepa": {
        "width": 32,
        "depth": 1,
        "heads": 2,
        "predictor_depth": 1,
        "predictor_heads": 2,
        "epochs": 3,
        "warmup_steps": 0,
        "lr": 0.01,
        "snapshot_every": 1,
    },
    "features": {"random_draws": 1},
    "probe.common": {"bootstrap": 20},
    "probe.linear": {"l2": [0.01], "max_iterations": 20},
    "probe.linear.paper": {"epochs": 1},
    "cells": {"representations": CELLS},
    "report": {"timelines": 1, "bootstrap": 20},
}
UNLABELLED = {"takes", "patches", "pretrain", "controls", "features"}


class Copy:
    """A copy of the project with its own Git and DVC, and small params."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in source_files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
        self.edit_params(SMALL)
        self.run("git", "init", "--quiet")
        self.run("git", "config", "user.name", "test")
        self.run("git", "config", "user.email", "test@localhost")
        self.commit()

    def run(self, *command: str, fails: bool = False) -> str:
        """Runs a command in the copy; returns stdout and stderr together."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{' '.join(command)}\n{done.stdout}"
        return done.stdout

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", "state")

    def edit_params(self, changes: dict[str, dict[str, Any]]) -> None:
        path = self.folder / "params.yaml"
        values = yaml.safe_load(path.read_text())
        for name, change in changes.items():
            section = values
            for part in filter(None, name.split(".")):
                section = section.setdefault(part, {})
            section.update(change)
        path.write_text(params_text(Params.model_validate(values)))

    def lock(self) -> dict[str, dict[str, Any]]:
        return yaml.safe_load((self.folder / "dvc.lock").read_text())["stages"]

    def hashes(self) -> dict[str, str]:
        """The content hash of every out, by path."""
        return {out["path"]: out["md5"] for s in self.lock().values() for out in s["outs"]}

    def restore(self) -> None:
        """Back to the commit, outs included."""
        self.run("git", "checkout", "--quiet", ".")
        self.run("dvc", "checkout", "--quiet", "--force")


def source_files() -> list[str]:
    """What a clone would hold, uncommitted files included; results are left behind."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if name not in ("dvc.lock", "results/metrics.json")]


def environment() -> dict[str, str]:
    """This interpreter first, and nothing of an outer DVC or Git run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "GIT_"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def ran(output: str) -> set[str]:
    """The stages that DVC ran, or would have run had the run-cache not known the result."""
    return set(re.findall(r"(?:Running stage|Stage) '([^']+)'(?=:| is cached)", output))


def cells(*names: str) -> set[str]:
    return {f"probe@linear-{name}" for name in names}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which every stage has run once, committed."""
    copy = Copy(tmp_path_factory.mktemp("repro") / "first")
    copy.run("dvc", "repro")
    copy.commit()
    return copy


@pytest.fixture
def copy(finished: Copy) -> Iterator[Copy]:
    yield finished
    finished.restore()


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


def test_editing_a_label_encodes_and_pretrains_nothing(copy: Copy) -> None:
    before = copy.hashes()
    change_one_label(copy.folder)
    copy.run("dvc", "commit", "--force", "takes")
    output = copy.run("dvc", "repro")
    assert not ran(output) & UNLABELLED
    # `pooler` and `select` may read labels; as set here they do not, and write the same.
    assert ran(output) == {"pooler", "tokens", "select", "curve", "report"} | cells(*CELLS)
    after = copy.hashes()
    assert after["models/pooler"] == before["models/pooler"]
    assert after["models/pjepa"] == before["models/pjepa"]
    assert after["data/tokens/stream.parquet"] == before["data/tokens/stream.parquet"]
    assert after["data/tokens/labels.parquet"] != before["data/tokens/labels.parquet"]


def test_another_pooler_and_back_trains_nothing_twice(copy: Copy) -> None:
    before = copy.hashes()
    output = copy.run("dvc", "exp", "run", "-S", "pooler.kind=action")
    learned = {"pooler", "tokens", "pretrain", "select", "curve", "controls", "features"}
    assert ran(output) == learned | cells(*CELLS) | {"report"}
    report = (copy.folder / "results/report/report.md").read_text()
    assert "`raw†`" in report  # labels went into it
    for kind, expected in (("mean", before), ("action", copy.hashes())):
        output = copy.run("dvc", "exp", "run", "-S", f"pooler.kind={kind}")
        assert "Running stage" not in output  # every stage comes from the run-cache
        assert copy.hashes() == expected


def change_one_label(folder: Path) -> None:
    """Gives the longest segment the label of another one; the cached copy is not touched."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "data/takes/segments.parquet"
    table = pq.read_table(path)
    frame: pd.DataFrame = table.to_pandas()
    longest = (frame["end_s"] - frame["start_s"]).idxmax()
    others = frame.loc[frame["label"] != frame.loc[longest, "label"], "label"]
    frame.loc[longest, "label"] = others.iloc[0]
    path.unlink()
    pq.write_table(pa.Table.from_pandas(frame, table.schema, preserve_index=False), path)


def test_queued_experiments_run_and_show(copy: Copy) -> None:
    """The last stage alone changes: the queue is what is tried here."""
    copy.run("dvc", "exp", "run", "--queue", "-S", "report.bootstrap=10,30")
    copy.run("dvc", "queue", "start")
    while len(re.findall("Success|Failed", status := copy.run("dvc", "queue", "status"))) < 2:
        time.sleep(2)  # one that is just being started is in no state at all
    assert status.count("Success") == 2, status + copy.run("dvc", "exp", "show")
    shown = csv.DictReader(copy.run("dvc", "exp", "show", "--csv").splitlines())
    assert {"10", "20", "30"} <= {row["report.bootstrap"] for row in shown}


def test_two_runs_from_scratch_are_byte_identical(finished: Copy, tmp_path: Path) -> None:
    second = Copy(tmp_path / "second")
    second.run("dvc", "repro")
    assert second.hashes() == finished.hashes()
