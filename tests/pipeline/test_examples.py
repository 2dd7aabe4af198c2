"""The examples run as they stand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pjepa.core.tables import Classes
from tests.video.films import write_film
from tests.worlds.token_projects import WIDTH, make_take, write_project

pytestmark = pytest.mark.slow

LONG = 500  # tokens of a take
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", MPLBACKEND="agg")


def run(script: str, cwd: Path, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_notebook_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # committed without outputs
    nbclient.NotebookClient(notebook, timeout=None, startup_timeout=600).execute()
    texts = [out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any("encoder features" in text for text in texts)


def test_features_become_a_table(tmp_path: Path) -> None:
    film = write_film(tmp_path / "a.mp4")
    options = ["--backbone", "vjepa2_1_vit_tiny", "--checkpoint", "random", "--crop", "32"]
    shown = run("features_only.py", tmp_path, str(film), *options)
    assert "time_s" in shown
    assert "0.25" in shown


def test_a_representation_becomes_a_data_loader(tmp_path: Path) -> None:
    takes, rng = {}, np.random.default_rng(0)
    for number in range(6):
        known = rng.integers(0, 3, LONG).astype(np.int32)
        take = make_take([LONG], f"t{number}", number)
        signal = 10 * np.eye(WIDTH, dtype=np.float32)[known]
        takes[take.take_id] = (take.with_features(take.features + signal), known)
    classes = Classes(("a", "b", "c"), None)
    write_project(tmp_path, takes, classes, ["train"] * 4 + ["test"] * 2)
    shutil.copytree(tmp_path / "data/tokens", tmp_path / "data/representations/pjepa")
    shown = run("pytorch_probe.py", tmp_path)
    assert shown.startswith("pjepa: ")
    assert float(shown.split()[1]) > 90
