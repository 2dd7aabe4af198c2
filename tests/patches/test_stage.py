"""Stage `patches`: what it writes, what it leaves out, and what survives when it is killed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from pjepa.core import tables as manifest
from pjepa.core.tables import VideoRow
from pjepa.patches.store import read_patches, take_file_name
from pjepa.storage.reading import read_json
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.ui.console import InputError
from pjepa.video.files import measured_videos
from stages import patches, pooler, tokens
from tests.patches.patch_infos import inline, tiny_config
from tests.video.corpus import Film
from tests.video.corpus import write_film as write_corpus_film
from tests.video.films import FPS, write_film, write_patched

ROOT = Path(__file__).parents[2]
CONFIG = tiny_config(window_scope="take")
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
    monkeypatch.setattr("pjepa.patches.local.chosen_executor", lambda config: inline)
    return tmp_path


def store() -> dict[str, bytes]:
    folder = Path(".dvc/tmp/pjepa/store/patches")
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def check_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """The same files with the same bytes; a difference is shown as numbers and their places."""
    assert sorted(found) == sorted(expected)
    for name, content in found.items():
        values = [np.frombuffer(both, np.float16) for both in (content, expected[name])]
        np.testing.assert_array_equal(*values, err_msg=name)
        assert content == expected[name]  # also where numbers compare as equal, 0.0 and -0.0 say


def test_one_take_more_is_one_take_encoded_and_a_label_none(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for takes, labels, encoded in ((3, 0, 3), (3, 0, 0), (4, 0, 1), (4, 1, 0)):
        rows = write_project(takes)
        write_labels(labels)
        patches.run()
        assert f"{takes} takes, {encoded} encoded now" in capsys.readouterr().err
    pooler.run()
    assert "nothing to train" in capsys.readouterr().err
    files = {take_file_name(row.take_id) for row in rows} | {"config.json", "skipped.json"}
    assert {path.name for path in paths.PATCHES.iterdir()} == files
    assert read_json(paths.PATCHES / "skipped.json") == {}
    info = read_json(paths.PATCHES / "config.json")
    assert (info["checkpoint"], info["fps"], info["tokens_fps"]) == ("random", 8.0, 4.0)


def test_a_lost_frame_is_repeated_if_asked_for_and_never_otherwise(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_project(3)
    write_patched(rows[1].path, rows[1].path)
    with pytest.raises(InputError, match=r"frames cannot be decoded.*patches\.on_error=repeat"):
        patches.run()
    write_project(3, on_error="repeat")
    patches.run()
    pooler.run()
    tokens.run()
    repeated = read_json(paths.PATCHES / "repeated.json")
    assert list(repeated) == ["take1"]
    said = f"take1: {repeated['take1']} frames cannot be decoded, replaced by the one before"
    assert said in capsys.readouterr().err
    assert StreamReader(paths.STREAM).info.provenance.frames_repeated == repeated["take1"] > 0
    write_project(3)
    with pytest.raises(InputError, match=r"1 of 3 takes cannot be encoded"):
        patches.run()


@pytest.mark.parametrize(("max_gap_s", "count"), [(None, 24), (1.0, 12)])
def test_time_stamps_that_jump_give_no_tokens(
    project: Path, max_gap_s: float | None, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(1)
    stamps = tuple(k + (75 if k >= 40 else 0) for k in range(72))  # 2.88 s and a pause of 3 s
    path = write_corpus_film(Film("pause.mp4", "libx264", stamps=stamps), Path("videos"))
    found = measured_videos({"t": path}, 1, max_gap_s or 10.0)["t"]
    row = replace(found.row("take1", "videos/pause.mp4"), root="project")
    manifest.write_videos(paths.VIDEOS_TABLE, [row])
    patches.run()
    pooler.run()
    tokens.run()
    assert len(StreamReader(paths.STREAM).read("take1").times) == count
    jumped = "videos/pause.mp4: time stamps jump by +3.0 s at 1.6 s: a new recording begins there"
    assert (jumped in capsys.readouterr().err) == (max_gap_s is not None)
    patches.run()  # from the store, which remembers the jump
    tokens.run()
    recording = StreamReader(paths.STREAM).read("take1").recording
    if max_gap_s is None:
        assert recording is None
        assert not (paths.PATCHES / "cuts.json").exists()
    else:
        assert recording.tolist() == [0] * 7 + [1] * 5  # 1.6 s is between tokens 6 and 7


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
    assert "RANDOM weights" in said
    assert "1 takes were left out (patches.on_error=skip)" in said
    assert "take1: videos/1.mp4: cannot be decoded" in said
    assert "tokens: 1 takes without patches left out: take1" in said
    assert StreamReader(paths.STREAM).takes == ["take0", "take2"]
    assert list(read_labels(paths.LABELS)) == ["take0", "take2"]


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
    check_same(store(), filled)


# The stage and its worker are killed when the second take's first frames are counted.
DIES_IN_THE_SECOND_TAKE = """
import os, signal
from pjepa.patches.local import Worker
from stages import patches
usual, ended = Worker.message, []
def message(worker):
    said = usual(worker)
    if isinstance(said, int) and ended:
        os.killpg(0, signal.SIGKILL)
    if not isinstance(said, int):
        ended.append(said)
    return said
Worker.message = message
patches.run()
"""


@pytest.mark.slow
def test_killed_anywhere_the_next_run_continues_to_the_same_bytes(project: Path) -> None:
    """A real SIGKILL of the stage with its worker half-way through the takes."""
    rows = write_project(4, frames=160, batch_windows=1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DIES_IN_THE_SECOND_TAKE]
    assert subprocess.run(command, env=environment, start_new_session=True).returncode == -9
    before = store()
    assert 1 <= len(before) < 4
    assert not paths.PATCHES.exists()
    patches.run()
    continued = store()
    check_same({name: continued[name] for name in before}, before)
    for path in Path(".dvc/tmp/pjepa/store/patches").glob("*.safetensors"):
        path.unlink()
    patches.run()
    check_same(store(), continued)
    shapes = [read_patches(paths.PATCHES / take_file_name(r.take_id)).patches.shape for r in rows]
    np.testing.assert_array_equal(shapes, [(40, 1, 64)] * 4)
