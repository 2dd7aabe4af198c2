"""The examples run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels
from tests.video.films import write_film

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
    rng = np.random.default_rng(0)
    labels = {f"t{n}": rng.integers(0, 3, LONG).astype(np.int32) for n in range(6)}
    still = np.zeros(LONG, np.int32)
    path = tmp_path / "data/representations/pjepa/stream.parquet"
    path.parent.mkdir(parents=True)
    with StreamWriter(path, StreamInfo(source="x", fps=4.0, width=3), "float32") as writer:
        for name, known in labels.items():
            features = np.eye(3, dtype=np.float32)[known] + rng.normal(0, 0.1, (LONG, 3))
            times = np.arange(LONG) / 4
            writer.write(Take(name, features.astype(np.float32), times, still, still))
    for folder in ("tokens", "takes"):
        (tmp_path / "data" / folder).mkdir()
    times = {name: np.arange(LONG) / 4 for name in labels}
    rows = [(name, times[name], known) for name, known in labels.items()]
    write_labels(tmp_path / "data/tokens/labels.parquet", rows)
    splits = ["train"] * 4 + ["test"] * 2
    table = pd.DataFrame({"take_id": list(labels), "split": splits})
    table.to_parquet(tmp_path / "data/takes/takes.parquet")
    shown = run("pytorch_probe.py", tmp_path)
    assert shown.startswith("pjepa: ")
    assert float(shown.split()[1]) > 90
