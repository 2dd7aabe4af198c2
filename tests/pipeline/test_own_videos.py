"""What the README promises a newcomer: a clone, a folder of videos, `dvc repro`, an eleventh video.

Commands run as people type them, in a real `git clone`. Only sizes differ: an untrained backbone of
few pixels, as `pjepa data init` suggests, and a short training.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from dvc.utils.hydra import apply_overrides

from pjepa.streams.stream import read_stream
from tests.pipeline.test_repro import ROOT, environment

pytestmark = pytest.mark.slow
STEPS = ("open box", "cut tape", "fold lid")
PART_S, FPS, SIDE = 2, 10, (112, 80)
SIZES = (
    "threads=1", "patches.crop=32", "pjepa.width=32", "pjepa.heads=2", "pjepa.predictor_heads=2",
    "pjepa.depth=1", "pjepa.epochs=2", "pjepa.milestones=[1]", "pjepa.snapshot_every=1",
    "features.random_draws=1", "curve.snapshots=1", "report.timelines=1",
)  # fmt: skip
POOLER = (
    "pooler.window=8",
    "pooler.depth=2",
    "pooler.heads=2",
    "pooler.epochs=2",
    "patches.grid=2",
)


def film(path: Path, order: tuple[str, ...], seed: int) -> None:
    """A bench under a moving light, a hand-sized tool whose shape and colour tell the step."""
    rng = np.random.default_rng(seed)
    width, height = SIDE
    rows, columns = np.mgrid[:height, :width]
    bench = rng.uniform(60, 160, 3) + 25 * np.sin(columns / rng.uniform(6, 14))[..., None]
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"g": "12", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(PART_S * FPS * len(order)):
            step = STEPS.index(order[number // (PART_S * FPS)])
            x, y = 56 + 30 * np.sin(number / 5 + seed), 40 + 20 * np.cos(number / 7)
            far = np.hypot(columns - x, rows - y) if step else np.maximum(
                abs(columns - x), abs(rows - y))  # fmt: skip
            picture = bench + 15 * np.sin(number / 20)
            picture[far < 12 + 6 * step] = np.roll((230, 60, 40), step)
            noisy = np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(noisy, format="rgb24")))
        container.mux(stream.encode())


def films(folder: Path, labelled: bool) -> Path:
    """Ten videos in two folders, with labels.csv or without; returns an eleventh, elsewhere."""
    lines = ["video,start,end,label,participant"]
    for number in range(11):
        order = tuple(np.roll(STEPS, number % 3))
        name = f"{'monday' if number % 2 else 'tuesday'}/take {number:02d}.mp4"
        film(folder / name if number < 10 else folder.parent / "eleventh.mp4", order, number)
        lines += [
            f"{name},{PART_S * k},{PART_S * k + PART_S},{step},p{number % 5}"
            for k, step in enumerate(order)
            if number < 10
        ]
    if labelled:
        (folder / "labels.csv").write_text("\n".join(lines))
    return folder.parent / "eleventh.mp4"


class Clone:
    """`git clone` of this project, with what is not committed yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        git = ["git", "clone", "--quiet", "--local", str(ROOT), str(folder)]
        subprocess.run(git, check=True, capture_output=True)
        listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, folder / name)

    def run(self, *command: object, fails: bool = False) -> str:
        """A command in the clone, with its own code; returns what it said."""
        unset = ("PYTHONPATH", "PJEPA_DATA_ROOT", "PJEPA_DEVICE", "PJEPA_CACHE")
        kept = {name: value for name, value in environment().items() if name not in unset}
        there = {"PYTHONPATH": str(self.folder), "PJEPA_CACHE": str(self.folder / "cache")}
        there |= {"OMP_NUM_THREADS": "1", "PJEPA_WORKERS": "1"}
        words = [str(word) for word in command]
        if words[0] == "pjepa":
            words[:1] = [sys.executable, "-m", "pjepa"]
        done = subprocess.run(
            words, cwd=self.folder, env={**kept, **there},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, f"{' '.join(words)}\n{done.stdout}"
        return done.stdout

    def change(self, *settings: str) -> None:
        """What a person would edit in params.yaml."""
        apply_overrides(str(self.folder / "params.yaml"), [*settings])


def suggested(said: str) -> list[str]:
    """The command with which `init` lets people try every step without weights."""
    command = re.search(r"`(dvc exp run [^`]*)`", said)
    assert command, said
    return command[1].split()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")


def test_ten_videos_without_labels_become_features(clone: Clone, tmp_path: Path) -> None:
    eleventh = films(tmp_path / "films", labelled=False)
    said = clone.run("pjepa", "data", "init", tmp_path / "films")
    assert "without labels no probe, so no `pjepa predict`" in said
    assert "pjepa fetch vjepa2_1_vit_large_384" in said
    assert "no take has labels: probes will be skipped" in clone.run("pjepa", "data", "check")
    sizes = [word for size in (*SIZES, "cells.representations=[pjepa]") for word in ("-S", size)]
    ran = clone.run(*suggested(said), *sizes)
    assert "no probe was run: no take has labels" in ran
    assert "features are in data/representations/" in ran
    stream = read_stream(clone.folder / "data/representations/pjepa/stream.parquet")
    assert len(stream.takes) == 10
    refused = clone.run("pjepa", "predict", eleventh, "--out", tmp_path / "steps", fails=True)
    errors = [line for line in refused.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "no take has labels" in errors[0]
    clone.run("pjepa", "extract", eleventh, "--model", "models", "--out", tmp_path / "features")
    features = np.load(tmp_path / "features/eleventh.npy")
    assert features.shape == (4 * PART_S * len(STEPS), 32)


def test_ten_videos_with_labels_become_steps_of_an_eleventh(clone: Clone, tmp_path: Path) -> None:
    eleventh = films(tmp_path / "films", labelled=True)
    said = clone.run("pjepa", "data", "init", tmp_path / "films")
    assert "probes on 10 labelled videos" in said
    offer = re.search(r"`pjepa (data init .*? --pooler action)`", said)
    assert offer
    said = clone.run("pjepa", *offer[1].split())
    assert "+  kind: action" in said
    assert clone.run("pjepa", "data", "check").endswith("ok\n")
    untrained = [word for word in suggested(said) if "=" in word]
    clone.change(*untrained, *SIZES, *POOLER, "cells.representations=[raw,pjepa]")
    ran = clone.run("dvc", "repro")
    assert "linear probe on test, percent" in ran
    clone.run("pjepa", "predict", eleventh, "--out", tmp_path / "steps")
    with (tmp_path / "steps/segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["video"] for row in rows} == {"eleventh.mp4"}
    assert {row["label"] for row in rows} <= set(STEPS)
    assert float(rows[-1]["end"]) == PART_S * len(STEPS)
    assert str(tmp_path) not in (clone.folder / "dvc.lock").read_text()
