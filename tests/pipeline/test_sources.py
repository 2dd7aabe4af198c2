"""Real files of other sources through every stage in one process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pjepa import paths
from pjepa.streams.store import StreamReader, read_labels
from tests.pipeline.in_process import SMALL, merged, project, run_stages
from tests.takes.bundles import write_bundle

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
