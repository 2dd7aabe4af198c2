"""Stage `patches`: what it writes, what it leaves out, and what survives when it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from pjepa import paths
from pjepa.backbones.store import read_patches, take_file_name
from pjepa.cli import app
from pjepa.config.patches import PatchesConfig
from pjepa.streams.store import StreamReader, read_labels
from pjepa.takes import manifest
from pjepa.takes.manifest import VideoRow
from pjepa.work import read_json
from stages import patches, pooler, tokens
from tests.backbones.test_extract import inline
from tests.video.films import FPS, write_film

ROOT = Path(__file__).parents[2]
CONFIG = PatchesConfig(
    backbone="vjepa2_1_vit_tiny",
    checkpoint="random",
    frames_per_window=8,
    crop=32,
    grid=1,
    window_scope="take",
)
LIMITS = [("take0", 0.0, 0.75, 1), ("take0", 1.0, 2.5, 0), ("take1", 0.0, 1.5, 1)]


def write_project(takes: int, frames: int = 40, **changes: object) -> list[VideoRow]:
    """Params, tables and videos of a small project in the working folder."""
    config = CONFIG.model_copy(update=changes)
    sections = {"patches": config.model_dump(), "pooler": {"kind": "mean", "cells": "concat"}}
    paths.PARAMS.write_text(yaml.safe_dump(sections))
    Path("videos").mkdir(exist_ok=True)
    rows = [VideoRow(f"take{k}", f"videos/{k}.mp4", FPS, frames / FPS) for k in range(takes)]
    for number, row in enumerate(rows):
        if not row.path.exists():
            write_film(row.path, number, frames)
    manifest.write_videos(paths.VIDEOS_TABLE, rows)
    write_labels(0)
    return rows


def write_labels(added: int) -> None:
    """The boundaries and segments; `added` changes every label and nothing else."""
    limits = [{"take_id": t, "start_s": a, "end_s": b} for t, a, b, _ in LIMITS]
    manifest.write_table(paths.BOUNDARIES_TABLE, limits, manifest.BOUNDARIES)
    segments = [
        {"take_id": t, "segment": k, "start_s": a, "end_s": b, "label": label + added}
        for k, (t, a, b, label) in enumerate(LIMITS)
    ]
    manifest.write_table(paths.SEGMENTS_TABLE, segments, manifest.SEGMENTS)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder; takes are encoded in this process (executors have their own tests)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(patches, "chosen_executor", lambda config: inline)
    monkeypatch.setattr("pjepa.executors.chosen.chosen_executor", lambda config: inline)
    return tmp_path


def store() -> dict[str, bytes]:
    folder = Path(".dvc/tmp/pjepa/store/patches")
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_patches_then_pooler(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_project(3)
    patches.run()
    patches.run()
    pooler.run()
    said = capsys.readouterr().err
    assert "RANDOM weights" in said
    assert "3 takes, 0 encoded now" in said
    assert "nothing to train" in said
    files = {take_file_name(row.take_id) for row in rows} | {"config.json", "skipped.json"}
    assert {path.name for path in paths.PATCHES.iterdir()} == files
    assert read_json(paths.PATCHES / "skipped.json") == {}
    info = read_json(paths.PATCHES / "config.json")
    assert (info["checkpoint"], info["fps"], info["tokens_fps"]) == ("random", 8.0, 4.0)


def test_one_take_more_is_one_take_encoded_and_a_label_none(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(100, frames=8)
    patches.run()
    assert "100 takes, 100 encoded now" in capsys.readouterr().err
    write_project(101, frames=8)
    patches.run()
    assert "101 takes, 1 encoded now" in capsys.readouterr().err
    write_labels(1)
    patches.run()
    assert "101 takes, 0 encoded now" in capsys.readouterr().err


def test_skipped_takes_are_left_out_of_the_stream_and_said(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_project(3, on_error="skip")
    rows[1].path.write_text("not a video")
    patches.run()
    assert list(json.loads((paths.PATCHES / "skipped.json").read_text())) == ["take1"]
    pooler.run()
    tokens.run()
    said = capsys.readouterr().err
    assert "1 takes were left out (patches.on_error=skip)" in said
    assert "take1: videos/1.mp4: cannot be decoded" in said
    assert "tokens: 1 takes without patches left out: take1" in said
    assert StreamReader(paths.STREAM).takes == ["take0", "take2"]
    assert list(read_labels(paths.LABELS)) == ["take0", "take2"]


@pytest.mark.parametrize(
    ("mode", "stride", "expected"), [("block", 1, 1.0), ("trailing", 1, 0.25), ("trailing", 2, 0.5)]
)
def test_the_stream_says_how_far_its_tokens_see(
    project: Path, mode: str, stride: int, expected: float
) -> None:
    write_project(1, window_mode=mode, window_stride=stride)
    patches.run()
    pooler.run()
    write_labels(0)
    tokens.run()
    assert StreamReader(paths.STREAM).info.provenance.lookahead_s == expected
    assert pq.ParquetFile(paths.STREAM).metadata.num_rows == 10


def test_shards_fill_the_store_and_the_stage_only_links(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(3)
    for shard in ("0/2", "1/2"):
        assert CliRunner().invoke(app, ["extract", "--shard", shard]).exit_code == 0
    filled = store()
    assert len(filled) == 3
    capsys.readouterr()
    patches.run()
    assert "3 takes, 0 encoded now" in capsys.readouterr().err
    assert store() == filled


def test_killed_anywhere_the_next_run_continues_to_the_same_bytes(project: Path) -> None:
    """A real SIGKILL of the stage with its worker half-way through the takes."""
    rows = write_project(4, frames=320, batch_windows=1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    stage = subprocess.Popen(
        [sys.executable, "-c", "from stages import patches; patches.run()"],
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not store():
        assert stage.poll() is None
        time.sleep(0.01)
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait()
    before = store()
    assert 1 <= len(before) < 4
    assert not paths.PATCHES.exists()
    patches.run()
    continued = store()
    assert {name: continued[name] for name in before} == before
    for path in Path(".dvc/tmp/pjepa/store/patches").glob("*.safetensors"):
        path.unlink()
    patches.run()
    assert store() == continued
    shapes = [read_patches(paths.PATCHES / take_file_name(r.take_id)).patches.shape for r in rows]
    np.testing.assert_array_equal(shapes, [(80, 1, 64)] * 4)
