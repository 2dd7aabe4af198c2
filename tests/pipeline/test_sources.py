"""Own videos through every stage in one process: without labels, and with one that is damaged.

The other sources run to the report in test_preset_runs.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pjepa.core.tables import read_videos
from pjepa.patches.store import SKIPPED, noted
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.cli import app
from tests.pipeline.in_process import SMALL, STAGES, merged, project, run_stages
from tests.worlds.own_videos import write_own_videos, write_video

pytestmark = pytest.mark.slow

FOLDER = {
    "data": {"source": "folder", "folder": {"path": "own videos"}},
    "pjepa": {"attention": "block_causal", "segments": "fixed", "block": 8},
}


def test_own_videos_without_labels_run_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    write_own_videos(root / "own videos")
    values = merged(SMALL, FOLDER, {"data": {"folder": {"labels": None}}})
    project(tmp_path / "project", monkeypatch, values, root)
    said = run_stages()
    stream = StreamReader(paths.STREAM)
    assert stream.takes == ["a b", "d", "deep/c", "e"]
    assert all(length == 24 for length in stream.lengths)  # 6 s at 4 tokens per second
    for name in ("raw", "pjepa"):
        assert StreamReader(paths.representation(name) / "stream.parquet").takes == stream.takes
    assert json.loads(paths.METRICS.read_text()) == {}
    assert said.count("skipped, no take has labels") == 3
    shown = CliRunner().invoke(app, ["summary"])
    assert (shown.exit_code, "no take has labels" in shown.stdout) == (0, True)
    text = (paths.REPORT / "report.md").read_text()
    assert "No probe was run: no take has labels" in text
    assert str(tmp_path) not in (paths.REPORT / "report.json").read_text()


def test_a_take_that_cannot_be_decoded_is_left_out_by_every_later_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "root" / "own videos"
    write_own_videos(own)
    for extra in ("f", "g"):
        write_video(own / f"{extra}.mp4", ("cut", "stir", "wait"))
        with (own / "labels.csv").open("a") as labels:
            labels.write(f"\n{extra},0,2,cut\n{extra},2,4,stir\n{extra},4,6,wait")
    pooler = {"kind": "action", "window": 8, "depth": 1, "heads": 2, "epochs": 1, "scope": "take"}
    values = merged(SMALL, FOLDER, {"patches": {"on_error": "skip"}, "pooler": pooler})
    project(tmp_path / "project", monkeypatch, values, tmp_path / "root")
    run_stages(["takes"])
    bad = next(row for row in read_videos(paths.VIDEOS_TABLE) if row.take_id == "f").path
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2])  # after the tables were made
    said = run_stages([name for name in STAGES if name != "takes"])
    assert list(noted(paths.PATCHES, SKIPPED)) == ["f"]
    assert "tokens: 1 takes without patches left out: f" in said
    for stream in (paths.STREAM, paths.representation("pjepa") / "stream.parquet"):
        assert StreamReader(stream).takes == ["a b", "d", "deep/c", "e", "g"]
    assert set(json.loads(paths.METRICS.read_text())["linear"]) == {"raw", "segment_mean", "pjepa"}
