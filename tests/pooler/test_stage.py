"""The stage over real patch files: bytes, labels it may not see, folds, kills, nothing to train."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from pjepa.core.tables import (
    BOUNDARIES,
    SEGMENTS,
    TAKES,
    VideoRow,
    write_classes,
    write_table,
    write_videos,
)
from pjepa.pooler.stored import load_pooler
from pjepa.storage.writing import write_json
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.tools import paths
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text
from pjepa.ui.console import InputError
from stages import pooler, tokens
from tests.pipeline.killed import run_killed
from tests.pooler.world import CLASSES, FPS, INFO, World

POOLER: dict[str, Any] = {
    "kind": "action", "window": 6, "depth": 2, "heads": 2, "mlp_ratio": 2.0, "dropout": 0.1,
    "epochs": 4, "lr": 3e-3, "batch_windows": 8,
}  # fmt: skip


def set_params(workers: int = 2, sections: dict[str, Any] | None = None, **changes: Any) -> None:
    values = {
        "machine": {"device": "cpu", "workers": workers},
        "threads": 1,
        "pooler": POOLER | changes,
        "patches": {"grid": 2},
    }
    Path("params.yaml").write_text(params_text(Params.model_validate(values | (sections or {}))))


def write_segments(world: World) -> None:
    write_table(paths.SEGMENTS_TABLE, world.segments.to_dict("records"), SEGMENTS)


def write_project(fps: float = FPS) -> World:
    """A project folder up to the patches; a repository, as dvclive wants one."""
    paths.PATCHES.mkdir(parents=True)
    made = World(paths.PATCHES, fps=fps)
    write_json(paths.PATCHES / "config.json", asdict(made.info))
    rows = [dict.fromkeys(TAKES.names, "x") | row for row in made.table.to_dict("records")]
    write_table(paths.TAKES_TABLE, rows, TAKES)
    write_segments(made)
    limits = made.segments[["take_id", "start_s", "end_s"]].to_dict("records")
    write_table(paths.BOUNDARIES_TABLE, limits, BOUNDARIES)
    write_classes(paths.CLASSES, CLASSES)
    videos = [VideoRow(t, f"{t}.mp4", 30.0, len(p) / fps) for t, p in made.patches.items()]
    write_videos(paths.VIDEOS_TABLE, videos)
    set_params()
    subprocess.run(["git", "init", "-q"], check=True)
    commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x", "--allow-empty"]
    subprocess.run(["git", *commit], check=True)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", ".")


@pytest.fixture
def world(folder: None) -> World:
    return write_project()


def outputs() -> dict[str, str]:
    """Hash of every file the stage wrote."""
    folders = (paths.POOLER, paths.POOLER_RESULTS)
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def clear() -> None:
    """As DVC does before it runs a stage."""
    for folder in ("models", "results"):
        shutil.rmtree(folder, ignore_errors=True)


def numbers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((paths.POOLER / "metrics.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_the_same_bytes_whatever_the_readers_others_labels_and_kills(world: World) -> None:
    """Labels of val and test are never looked at; one label of train is."""
    set_params(folds=2)
    pooler.run()
    expected = outputs()
    assert {Path(name).name for name in expected} >= {
        "model.safetensors", "config.json", "metrics.json", "loss.tsv", "holdout_loss.tsv",
    }  # fmt: skip
    clear()
    run_killed("pooler", (7, 60), clear)  # within an epoch, and within a fold's training
    assert outputs() == expected
    set_params(5, folds=2)
    foreign = world.segments["take_id"].isin(["t10", "t11"])
    world.segments.loc[foreign, "label"] = 1
    write_segments(world)
    clear()
    pooler.run()
    assert outputs() == expected
    world.segments.loc[0, "label"] = (world.segments.loc[0, "label"] + 1) % 4
    write_segments(world)
    pooler.run()
    assert outputs() != expected
    assert not list(Path(".dvc/tmp/pjepa/pooler").glob("*/*.pt"))


def test_config_is_all_that_live_use_needs(world: World) -> None:
    pooler.run()
    found = load_pooler(paths.POOLER)
    facts = found.facts
    assert (facts.kind, facts.width, facts.window, facts.scope) == ("action", 8, 6, "segment")
    assert asdict(facts.patches) == asdict(INFO)
    assert (facts.train_labels, facts.selection_labels, facts.folds) == (True, "holdout", 0)
    assert found.window_tokens(world.patches["t0"][:4].astype(np.float32)).shape == (4, 8)
    stored = json.loads((paths.POOLER / "config.json").read_text())
    assert "classifier" not in json.dumps(stored)  # discarded after training


def test_tokens_carry_supervision_and_one_token_per_step(world: World) -> None:
    set_params(folds=2)
    pooler.run()
    tokens.run()
    stream = StreamReader(paths.STREAM)
    assert stream.takes == list(world.patches)
    assert stream.lengths == [len(patches) for patches in world.patches.values()]
    info = stream.info
    assert info.pooler is not None
    assert info.pooler.supervised
    assert info.pooler.sha256 == load_pooler(paths.POOLER).facts.sha256
    seen = info.provenance
    assert (seen.train_labels, seen.label_folds, seen.selection_labels) == (True, 2, "holdout")
    assert (seen.boundaries_train, seen.boundaries_test) == ("annotated", "annotated")
    assert seen.lookahead_s == (6 + 8 - 1) / FPS
    metadata = json.loads(pq.read_schema(paths.STREAM).metadata[b"pjepa"])
    assert metadata["pooler"]["kind"] == "action"
    labels = read_labels(paths.LABELS)
    for take in world.patches:
        np.testing.assert_array_equal(labels[take], world.labels(take))
    found = numbers()
    pairs = zip(found["fold_agreement_before"], found["fold_agreement"], strict=True)
    assert all(after > before for before, after in pairs)  # folds are turned into its space


@pytest.mark.slow
def test_folds_give_train_takes_tokens_blind_to_their_labels(world: World) -> None:
    """Other labels for one take change its fold's siblings, never what its own fold's pooler is."""
    set_params(folds=4, epochs=2, patience=2)
    pooler.run()
    found, before = numbers(), fold_models()
    assert set(found) >= {"in_fold_acc", "out_of_fold_acc", "holdout_acc", "fold_acc"}
    assert len(found["fold_acc"]) == 4
    fold = json.loads((paths.POOLER / "config.json").read_text())["fold_of"]
    mine = world.segments["take_id"] == "t0"
    world.segments.loc[mine, "label"] = (world.segments.loc[mine, "label"] + 1) % 4
    write_segments(world)
    pooler.run()
    assert numbers()["best_epoch"] == found["best_epoch"]
    for number, weights in enumerate(fold_models()):
        same = all(torch.equal(weights[name], before[number][name]) for name in weights)
        assert same == (number == fold["t0"]), number


def fold_models() -> list[dict[str, torch.Tensor]]:
    """The weights of every fold's pooler; the map into the main one's space follows the latter."""
    files = sorted(paths.POOLER.glob("fold-*.safetensors"))
    return [
        {k: v for k, v in load_file(file).items() if not k.startswith("align.")} for file in files
    ]


def test_nothing_to_train_writes_both_outs(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    set_params(kind="mean", cells="concat")
    pooler.run()
    assert "nothing to train" in capsys.readouterr().err
    first = outputs()
    assert load_pooler(paths.POOLER).tokens(world.patches["t0"]).shape[1] == 32
    world.segments.loc[0, "label"] = 3
    write_segments(world)
    pooler.run()
    assert outputs() == first  # labels play no part
    write_json(paths.PATCHES / "config.json", {"kind": "shipped", "name": "i3d"})
    pooler.run()
    assert "nothing to pool" in capsys.readouterr().err
    assert paths.POOLER_RESULTS.is_dir()


def test_impossible_heads_are_named(world: World) -> None:
    set_params(heads=3)
    with pytest.raises(InputError, match=r"pooler.heads 3 does not divide the width 8"):
        pooler.run()


def test_two_queries_per_step_make_tokens_at_twice_the_rate(folder: None) -> None:
    """The paper's literal reading: frames at the token rate, a query for each."""
    world = write_project(fps=2.0)
    rates = {"patches": {"fps": 4.0, "grid": 2}, "tokens": {"fps": 4.0}}
    set_params(sections=rates, queries=12, target="frame")
    pooler.run()
    tokens.run()
    stream = StreamReader(paths.STREAM)
    assert stream.info.fps == 4.0
    assert stream.lengths == [2 * len(patches) for patches in world.patches.values()]
    assert stream.read("t0").times[:3].tolist() == [0.0, 0.25, 0.5]
