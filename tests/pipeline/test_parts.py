"""Streams that are folders of parts: every stage works as on single files, to the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjepa.storage.reading import read_json
from pjepa.streams import stream as store
from pjepa.tools import paths
from tests.pipeline.in_process import project, run_stages
from tests.pipeline.test_preset_runs import miniature

pytestmark = pytest.mark.slow


def test_all_stages_run_on_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = miniature("release-assembly101-clip", tmp_path / "root")
    found = []
    for name, limit in (("whole", store.PART_BYTES), ("parts", 4000)):
        monkeypatch.setattr(store, "PART_BYTES", limit)
        project(tmp_path / name, monkeypatch, values, tmp_path / "root")
        run_stages()
        found.append(read_json(paths.METRICS))
    written = [paths.STREAM, *paths.representation_streams(paths.representation("pjepa"))]
    assert all(path.is_dir() and len(list(path.iterdir())) > 1 for path in written)
    assert found[0] == found[1]
    assert (tmp_path / "whole" / paths.STREAM).is_file()
