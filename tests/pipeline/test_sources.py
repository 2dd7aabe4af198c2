"""Real files of other sources through every stage in one process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pjepa import paths
from pjepa.errors import InputError
from pjepa.streams.store import StreamReader, read_labels
from tests.pipeline.in_process import SMALL, merged, project, run_stages
from tests.takes.bundles import write_bundle
from tests.takes.own_videos import write_own_videos

MSTCN = {"data": {"source": "mstcn", "mstcn": {"dataset": "gtea"}}}


@pytest.mark.parametrize("fps", [4.0, 15.0])
def test_a_bundle_with_its_own_features_runs_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fps: float
) -> None:
    write_bundle(tmp_path / "root" / "gtea")
    values = merged(SMALL, MSTCN, {"tokens": {"fps": fps}})
    project(tmp_path / "project", monkeypatch, values, tmp_path / "root")
    said = run_stages()
    assert "patches: the takes ship features" in said
    assert "pooler: the takes ship features" in said
    stream = StreamReader(paths.STREAM)
    assert stream.info.fps == fps
    assert stream.info.provenance.lookahead_s == pytest.approx(10 / 15)
    assert json.loads((paths.PATCHES / "config.json").read_text())["kind"] == "shipped"
    take = stream.read(stream.takes[0])
    native = np.round(take.times * 15).astype(int)
    assert native[:4].tolist() == ([0, 3, 7, 11] if fps == 4 else [0, 1, 2, 3])
    np.testing.assert_array_equal(take.features[:, 0], native)  # the fixture counts its frames
    assert (read_labels(paths.LABELS)[take.take_id] >= 0).all()
    metrics = json.loads(paths.METRICS.read_text())
    assert set(metrics["linear"]) == {"raw", "segment_mean", "pjepa"}
    assert not list(paths.DEMO.rglob("*.mp4"))


FOLDER = {
    "data": {"source": "folder", "folder": {"path": "own videos"}},
    "pjepa": {"attention": "block_causal", "segments": "fixed", "block": 8},
}


@pytest.mark.parametrize("labelled", [True, False])
def test_own_videos_run_to_the_report_with_and_without_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool
) -> None:
    root = tmp_path / "root"
    write_own_videos(root / "own videos")
    change = {} if labelled else {"data": {"folder": {"labels": None}}}
    project(tmp_path / "project", monkeypatch, merged(SMALL, FOLDER, change), root)
    said = run_stages()
    stream = StreamReader(paths.STREAM)
    assert stream.takes == ["a b", "d", "deep/c", "e"]
    assert all(length == 24 for length in stream.lengths)  # 6 s at 4 tokens per second
    metrics = json.loads(paths.METRICS.read_text())
    text = (paths.REPORT / "report.md").read_text()
    for name in ("raw", "pjepa"):  # exported either way
        assert StreamReader(paths.representation(name) / "stream.parquet").takes == stream.takes
    before = paths.STREAM.read_bytes(), paths.LABELS.read_bytes()
    if labelled:
        edit_a_label(root / "own videos/labels.csv")
        again = run_stages(["takes", "patches", "pooler", "tokens"])
        assert "4 takes, 0 encoded now" in again  # a label encodes nothing
        after = paths.STREAM.read_bytes(), paths.LABELS.read_bytes()
        assert (after[0] == before[0], after[1] == before[1]) == (True, False)
        assert "splits drawn by group" in said
        assert set(metrics["linear"]) == {"raw", "segment_mean", "pjepa"}
    else:
        assert metrics == {}
        assert said.count("skipped, no take has labels") == 3
        assert "No probe was run: no take has labels" in text
    assert str(tmp_path) not in (paths.REPORT / "report.json").read_text()


def edit_a_label(path: Path) -> None:
    head, first, rest = path.read_text().split("\n", 2)
    path.write_text("\n".join([head, first.rsplit(",", 1)[0] + ",stir", rest]))


def test_unlabelled_takes_under_annotated_segments_are_an_error_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_videos(tmp_path / "own videos")
    values = merged(SMALL, FOLDER, {"data": {"folder": {"labels": None}}})
    values["pjepa"] |= {"attention": "clip_causal", "segments": "annotated"}
    project(tmp_path, monkeypatch, values)
    with pytest.raises(InputError, match=r"no annotated segments.*block_causal.*segments=found"):
        run_stages(["takes", "patches", "pooler", "tokens", "pretrain"])
