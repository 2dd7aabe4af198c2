"""Revisions of a real project: read from Git and DVC's cache, and side by side on a page."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dvc.repo import Repo
from typer.testing import CliRunner, Result

from pjepa.report.markdown import MAP_PATHS, TRAJECTORIES
from pjepa.storage.reading import read_json
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.cli import app
from tests.report.conftest import HOSTILE, SMALL_PARAMS

CELLS = "cells: {probes: [linear], representations: [raw, history, pjepa]}\n"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


@pytest.fixture(scope="module")
def two(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tag `first`, and files on disk where pjepa fell back to raw, with another seed."""
    folder = tmp_path_factory.mktemp("two") / "project"
    shutil.copytree(built, folder, ignore=shutil.ignore_patterns(".dvc"))  # others' work folder
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        git("init", "-q", "..")  # the project is a folder of its repository
        git("config", "user.name", "t")
        git("config", "user.email", "t@t")
        with Repo.init(subdir=True) as repo:
            paths.PARAMS.write_text(SMALL_PARAMS + CELLS + "pjepa: {seed: 0, mask_ratio: 0.8}\n")
            git("add", str(paths.PARAMS))
            git("commit", "-qm", "no results")
            write_json(paths.REPORT / "analyses.json", analyses(0.25))
            write_json(paths.REPORT / "maps.json", maps(0))
            repo.add(str(paths.cell("linear", "raw")))
            git("add", "--all")
            git("commit", "-qm", "first")
            git("tag", "first")
            shutil.rmtree(paths.cell("linear", "pjepa"))
            shutil.copytree(paths.cell("linear", "raw"), paths.cell("linear", "pjepa"))
            paths.PARAMS.write_text(SMALL_PARAMS + CELLS + "pjepa: {seed: 3, mask_ratio: 0.8}\n")
            write_json(paths.REPORT / "analyses.json", analyses(0.75))
            write_json(paths.REPORT / "maps.json", maps(1))
            repo.experiments.save(name="second")
    return folder


def analyses(value: float) -> dict:
    median = {"mean": value, "low": value, "high": value}
    profile = {"mean": [0, value, 1], "low": [0, value, 1], "high": [0, value, 1], "takes": 6}
    return {
        "takes": 6,
        "trajectories": {"pjepa": dict.fromkeys(TRAJECTORIES, median)},
        "progress": {"pjepa": profile},
        "map_paths": dict.fromkeys(("raw", "pjepa"), dict.fromkeys(MAP_PATHS, median)),
    }


def maps(seed: int, labels: tuple[int, ...] = (1, 2, 3)) -> dict:
    points = np.random.default_rng(seed).normal(size=(2, 3, 2)).round(2).tolist()
    return {
        "takes": ["a"],
        "of": 6,
        "names": ["raw", "pjepa"],
        "points": dict(zip(("raw", "pjepa"), points, strict=True)),
        "take": [0, 0, 0],
        "times": [0.0, 0.5, 1.0],
        "labels": list(labels),
    }


@pytest.fixture
def out(two: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The page to write, in the project."""
    monkeypatch.chdir(two)
    return tmp_path / "two.html"


def page_text(out: Path) -> str:
    done = compare("first", "workspace", "--html", str(out))
    assert done.exit_code == 0, done.output
    return out.read_text()


def test_the_page_says_what_differs_and_who_lost(out: Path) -> None:
    text = page_text(out)
    assert HOSTILE not in text
    assert git("rev-parse", "first").strip() in text
    row = r'<th scope="row"><code>pjepa.seed</code></th>\s*<td[^>]*>0</td>\s*<td[^>]*>3</td>'
    assert re.search(row, text)
    assert "mask_ratio</code></th>" not in text
    assert "0 takes got better, 6 worse" in text  # pjepa fell back to raw
    assert "0.250" in text
    assert "0.750" in text
    data = page_data(text)
    names = [track["name"] for track in data["timelines"]["takes"][0]["tracks"]]
    assert names == ["ground truth", "first, linear", "workspace, linear"]
    assert any("frames" in take for take in data["timelines"]["takes"])
    assert [s["name"] for s in data["curves"][0]["series"]] == ["first", "workspace"]
    gains = [row["gain"][0] for row in data["takes"]["rows"]]
    assert gains == sorted(gains, reverse=True)
    details = read_json(paths.cell("linear", "raw") / "metrics.json")
    assert f"{details['acc']:.1f}</td>" in text


def page_data(text: str) -> dict:
    found = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def test_maps_stand_side_by_side_where_they_show_the_same(out: Path) -> None:
    table = paths.REPORT / "maps.json"
    panels = page_data(page_text(out))["maps"]["panels"]
    titles = [f"{kind}, {name}" for kind in ("raw", "pjepa") for name in ("first", "workspace")]
    assert [panel["name"] for panel in panels] == titles
    assert len({str(panel["xy"]) for panel in panels}) == 4
    write_json(table, maps(1, (1, 2, 4)))  # other segments: nothing to share
    data = page_data(page_text(out))
    assert [len(data[f"maps-{name}"]["panels"]) for name in ("first", "workspace")] == [2, 2]
    table.unlink()
    assert "workspace</strong>: its report has no maps" in page_text(out)


def test_revisions_are_read_with_dvc(out: Path) -> None:
    """A cell is in DVC's cache, the others are in Git, a third revision is on disk."""
    numbers = out.with_suffix(".json")
    found = compare("first", "second", "--json", str(numbers), "--metric", "edit")
    assert found.exit_code == 0, found.output
    assert "mean, min, max over 2: first, second" in found.output
    values = json.loads(numbers.read_text())
    cells = values["arms"][0]["cells"]["linear"]
    raw, pjepa = (cells[name]["edit"]["values"] for name in ("raw", "pjepa"))
    assert raw[0] == raw[1] == pjepa[1] != pjepa[0]
    assert raw[0] == round(read_json(paths.cell("linear", "raw") / "metrics.json")["edit"], 4)
    assert len({row["commit"] for row in values["experiments"]}) == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("first --html X", "--html: compares two experiments, given 1"),
        ("first nowhere", "nowhere: no such experiment, branch, tag or commit"),
        ("first HEAD", "first and HEAD: the same commit"),
        ("HEAD~1", "HEAD~1: results/probe/linear-raw/details.json: cannot be read"),
        ("first --probe fact", "first: probe 'fact' is not in its `cells`; there: linear"),
        ("first --metric nope", "metric 'nope': linear cells have "),
    ],
)
def test_what_cannot_be_compared_is_one_line(out: Path, words: str, error: str) -> None:
    refused = compare(*(str(out) if word == "X" else word for word in words.split()))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"error: {error}"), refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not out.exists()


def test_what_is_damaged_or_lost_is_named(two: Path, out: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(two.parent, tmp_path / "copy") / two.name
    os.chdir(copy)
    raw, history = paths.cell("linear", "raw"), paths.cell("linear", "history")
    for lost, words, error in (
        (raw / "predictions.parquet", f"first workspace --html {out}", "predictions.parquet"),
        (history / "metrics.json", "workspace", "linear-history: details.json or metrics.json is "),
        (Path(".dvc/cache"), "second", "second: results/probe/linear-raw/details.json: cannot be "),
    ):
        shutil.rmtree(lost) if lost.is_dir() else lost.write_text("{}")
        refused = compare(*words.split())
        assert refused.exit_code == 1
        assert error in refused.stderr
        assert refused.stderr.count("\n") == 1
