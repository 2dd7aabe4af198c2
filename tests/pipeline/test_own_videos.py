"""What the README promises a newcomer: a clone, a folder of videos, `dvc repro`, an eleventh video.

Commands run as people type them. Only sizes differ: an untrained backbone of
few pixels, as `pjepa data init` suggests, and a short training.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import av
import numpy as np
import pytest

from pjepa.streams.stream import read_stream
from tests.pipeline.copies import Copy

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


def order(number: int) -> tuple[str, ...]:
    return tuple(np.roll(STEPS, number % 3))


def name(number: int) -> str:
    return f"{'monday' if number % 2 else 'tuesday'}/take {number:02d}.mp4"


def write_films(folder: Path) -> Path:
    """Ten videos in two folders; returns an eleventh, elsewhere."""
    for number in range(10):
        film(folder / name(number), order(number), number)
    film(folder.parent / "eleventh.mp4", order(10), 10)
    return folder.parent / "eleventh.mp4"


def write_labels(folder: Path) -> None:
    lines = [
        f"{name(number)},{PART_S * k},{PART_S * k + PART_S},{step},p{number % 5}"
        for number in range(10)
        for k, step in enumerate(order(number))
    ]
    (folder / "labels.csv").write_text("\n".join(["video,start,end,label,participant", *lines]))


def suggested(said: str) -> list[str]:
    """The settings with which `init` lets people try every step without weights."""
    command = re.search(r"`dvc exp run ([^`]*)`", said)
    assert command, said
    return [word for word in command[1].split() if word != "-S"]


def error(said: str) -> str:
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    return line


def test_ten_videos_become_features_and_with_labels_the_steps_of_an_eleventh(
    tmp_path: Path,
) -> None:
    project, films = Copy(tmp_path / "project", {}), tmp_path / "films"
    eleventh = write_films(films)

    said = project.run("pjepa", "data", "init", films)
    assert "without labels no probe, so no `pjepa predict`" in said
    assert "pjepa fetch vjepa2_1_vit_large_384" in said
    assert "no take has labels: probes will be skipped" in project.run("pjepa", "data", "check")
    project.change(*suggested(said), *SIZES, "cells.representations=[pjepa]")
    ran = project.run("dvc", "repro")
    assert "no probe was run: no take has labels" in ran
    assert "features are in data/representations/" in ran
    stream = read_stream(project.folder / "data/representations/pjepa/stream.parquet")
    assert len(stream.takes) == 10
    refused = project.run("pjepa", "predict", eleventh, "--out", tmp_path / "steps", fails=True)
    assert "no take has labels" in error(refused)
    project.run("pjepa", "extract", eleventh, "--model", "models", "--out", tmp_path / "features")
    features = np.load(tmp_path / "features/eleventh.npy")
    assert features.shape == (4 * PART_S * len(STEPS), 32)

    write_labels(films)
    project.run("pjepa", "preset", "own-videos", "--keep", "data")
    said = project.run("pjepa", "data", "init", films)
    assert "probes on 10 labelled videos" in said
    offer = re.search(r"`pjepa (data init .*? --pooler action)`", said)
    assert offer
    said = project.run("pjepa", *offer[1].split())
    assert "+  kind: action" in said
    assert project.run("pjepa", "data", "check").endswith("ok\n")
    project.change(*suggested(said), *SIZES, *POOLER, "cells.representations=[raw,pjepa]")
    assert "linear probe on test, percent" in project.run("dvc", "repro")
    project.run("pjepa", "predict", eleventh, "--out", tmp_path / "steps")
    with (tmp_path / "steps/segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["video"] for row in rows} == {"eleventh.mp4"}
    assert {row["label"] for row in rows} <= set(STEPS)
    assert float(rows[-1]["end"]) == PART_S * len(STEPS)
    assert str(tmp_path) not in (project.folder / "dvc.lock").read_text()
