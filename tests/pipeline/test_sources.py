"""Own videos without labels or damaged through every stage, and frame features to tokens.

The other sources run to the report in test_preset_runs.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pjepa.core.tables import read_videos
from pjepa.patches.store import SKIPPED, noted
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.tools import paths
from pjepa.tools.cli import app
from tests.pipeline.in_process import SMALL, STAGES, merged, project, run_stages
from tests.worlds.assembly import SEQUENCES, SPANS, VIEW, write_annotations, write_lmdb
from tests.worlds.bundles import EGOPROCEL, STEPS, frame_labels, write_bundle, write_egoprocel
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


def stream_of(
    root: Path, project_folder: Path, monkeypatch: pytest.MonkeyPatch, values: dict
) -> StreamReader:
    """The stream that the first stages make of a source."""
    project(project_folder, monkeypatch, merged(SMALL, values), root)
    run_stages(["takes", "patches", "pooler", "tokens"])
    return StreamReader(paths.STREAM)


@pytest.mark.parametrize("fps", [4.0, 15.0])
def test_tokens_of_a_bundle_are_the_last_row_at_or_before_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fps: float
) -> None:
    write_bundle(tmp_path / "root" / "gtea")
    values = {"data": {"source": "mstcn", "mstcn": {"dataset": "gtea"}}, "tokens": {"fps": fps}}
    stream = stream_of(tmp_path / "root", tmp_path / "project", monkeypatch, values)
    assert stream.info.provenance.lookahead_s == pytest.approx(10 / 15)
    take = stream.read(stream.takes[0])
    native = np.round(take.times * 15).astype(int)
    assert native[:4].tolist() == ([0, 3, 7, 11] if fps == 4 else [0, 1, 2, 3])
    np.testing.assert_array_equal(take.features[:, 0], native)  # the fixture counts its frames
    assert (read_labels(paths.LABELS)[take.take_id] >= 0).all()


def test_assembly101_from_lmdb_to_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "root/assembly101"
    write_annotations(base)
    write_lmdb(base / "db_TSM_features" / VIEW)
    values = {"data": {"source": "assembly101"}, "tokens": {"fps": 3.75}}
    stream = stream_of(tmp_path / "root", tmp_path / "project", monkeypatch, values)
    assert (stream.info.width, stream.info.source) == (2048, "TSM of Assembly101")
    assert stream.info.provenance.train_labels
    assert stream.info.provenance.lookahead_s == 0
    for kind, (first, end) in SPANS.items():
        take = stream.read(f"{kind}/{SEQUENCES[0]}/{VIEW}")
        frames = np.arange(first, end, 8)
        np.testing.assert_array_equal(take.features[:, 0], frames)
        np.testing.assert_allclose(take.times, frames / 30)
        middle = (first + end) // 2
        np.testing.assert_array_equal(take.segment, frames >= middle)
        labels = read_labels(paths.LABELS)[take.take_id]
        np.testing.assert_array_equal(labels, np.where(frames >= middle, 2, 0))


def test_egoprocel_tokens_keep_their_stamps_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_egoprocel(tmp_path / "root/egoprocel")
    values = {"data": {"source": "egoprocel"}}
    stream = stream_of(tmp_path / "root", tmp_path / "project", monkeypatch, values)
    assert stream.info.provenance.lookahead_s == pytest.approx(3.2)
    for number, name in enumerate(EGOPROCEL):
        take, rows = stream.read(name), np.floor(np.arange(48) * 2.5).astype(int)
        np.testing.assert_array_equal(take.features[:, 0], rows)
        np.testing.assert_allclose(take.times, rows / 10)
        truth = frame_labels(number, 120, STEPS)
        expected = [STEPS.index(truth[row]) for row in rows]
        assert read_labels(paths.LABELS)[name].tolist() == expected
