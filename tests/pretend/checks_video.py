"""From video to chosen encoder on the pretend device: extraction, pooler, selection, live use."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pjepa.live.models import load_models
from pjepa.live.session import Options, Session
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.store import read_patches
from pjepa.pooler.takes import clip_batches, epoch_clips
from pjepa.pooler.train import (
    Fit,
    PoolerEpochs,
    PoolerTask,
    train_pooler,
)
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake
from pjepa.pretrain.loop import pretrain
from pjepa.select.curve import read_curve
from pjepa.streams.stream import StreamReader
from pjepa.tools.params import Params
from pjepa.tools.paths import CURVE, SNAPSHOTS, STREAM
from pjepa.tools.presets import params_text
from stages.curve import run as run_curve
from stages.features import run as run_features
from stages.select import run as run_select
from tests.live.world import (
    PATCHES,
    make_action_pooler,
    make_project,
    make_video,
    stop_after,
)
from tests.pooler.test_fit import config as pooler_config
from tests.pooler.world import CLASSES, INFO, World
from tests.pretend.device import NAME, counted
from tests.select.judged import write_world

PLACES = ("cpu", NAME)


def test_patches_of_a_video_are_those_of_the_cpu(tmp_path):
    video = make_video(tmp_path / "x.mp4", 4.2)
    found = []
    for place in PLACES:
        config = PATCHES.model_copy(update={"device": place, "batch_windows": 2})
        job = Job("take", video.name, video, 0.0, None, tmp_path / f"{place}.safetensors")
        with counted() as waits:
            outcome = encoded_job(job, config, backbone_facts(config), lambda frames: None)
        assert outcome.reason is None
        assert waits.count("upload", "patches/encode") == 0, waits.table()
        found.append(np.array(read_patches(job.target).patches, np.float32))
    np.testing.assert_allclose(found[1], found[0], atol=1e-2)  # stored in float16


@pytest.mark.parametrize(("target", "folds"), [("frame", 2), ("clip", 0)])
def test_a_pooler_is_trained_as_on_the_cpu_and_a_step_waits_once(target, folds, tmp_path):
    takes, logs = World(tmp_path, unknown=True).takes(), []
    takes = replace(takes, fit=takes.fit[:4], holdout=takes.holdout[:1])
    for place in PLACES:
        config = pooler_config(
            target=target, folds=folds, epochs=1, dropout=0.0, input_norm="standardize",
            device=place,
        )  # fmt: skip
        task, log = PoolerTask(config, INFO, len(CLASSES.names)), []
        folder = tmp_path / place
        folder.mkdir()
        train_pooler(task, takes, tmp_path / f"{place}-work", folder, log.append)
        logs.append(log)
    for entry, expected in zip(*reversed(logs), strict=True):
        assert entry == pytest.approx(expected, rel=1e-3)
    fit = Fit(task, takes.fit, (), 1)
    batches = list(clip_batches(epoch_clips(takes.fit, config, 0), 8, 1))
    fit.step(batches[0], 1e-3, PoolerEpochs())  # makes the optimiser's state
    with counted() as waits:
        fit.step(batches[1], 1e-3, PoolerEpochs())
    assert (waits.count("sync"), waits.count("upload")) == (1, 0), waits.table()


def test_features_and_curve_are_those_of_the_cpu(tmp_path, monkeypatch):
    """All representations of the encoder; two snapshots with the heads of the neighbour term."""
    shape = {"width": 16, "heads": 2, "predictor_heads": 2, "depth": 1, "predictor_depth": 1}
    config = PjepaConfig(**shape, epochs=2, snapshot_every=1, neighbours=(1,), device="cpu")
    chosen = {"threads": 1, "features": {"random_draws": 1}}
    found = []
    for place in PLACES:
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        monkeypatch.setenv("DVC_ROOT", ".")
        monkeypatch.setenv("PJEPA_DEVICE", place)
        write_world()
        shutil.rmtree(SNAPSHOTS)
        takes = [
            TrainingTake(number, take.take_id, take.features, take.segment.astype(np.int64))
            for number, take in enumerate(StreamReader(STREAM).read_many())
        ]
        pretrain(takes, config, Path("work"), SNAPSHOTS, [].append)
        Path("params.yaml").write_text(params_text(Params.model_validate(chosen)))
        for run in (run_select, run_features, run_curve):
            run()
        names = ("pjepa", "pjepa_segment", "random/0", "forecast")
        files = [Path("data/representations") / name / STREAM.name for name in names]
        parts = [t.features for f in files for t in StreamReader(f).read_many()]
        found.append((parts, read_curve(CURVE / "curve.json")))
    (here, curve), (there, other) = found
    for expected, features in zip(here, there, strict=True):
        np.testing.assert_allclose(features, expected, atol=1e-2)  # stored in float16
    assert other.scores == pytest.approx(curve.scores, abs=3)
    assert other.references == pytest.approx(curve.references, abs=3)


@pytest.mark.parametrize("cell", ["linear-pjepa", "attentive-pjepa", "ltcausal-raw"])
def test_a_live_session_says_what_it_says_on_the_cpu(cell, tmp_path):
    """With an action pooler; interrupted after a while, it goes on from its saved state."""
    wanted, video = make_project(tmp_path), make_video(tmp_path / "x.mp4", 9.0)
    make_action_pooler(tmp_path, window=4)
    said = []
    for place in PLACES:
        changed = {"cell": tmp_path / "results/probe" / cell, "device": place}
        models = load_models(type(wanted)(**vars(wanted) | changed))
        out, state = tmp_path / f"{place}.jsonl", tmp_path / f"{place}-state"
        options = Options(jsonl=out, quiet=True, state=state)
        session = Session(models, str(video), options)
        stop_after(session, hops=2)
        assert session.run()["status"] == "stopped"
        assert Session(models, str(video), options).run()["status"] == "ended"
        said.append([json.loads(line) for line in out.read_text().splitlines()])
    for row, expected in zip(*reversed(said), strict=True):
        assert [row[key] for key in ("start", "end", "label")] == [
            expected[key] for key in ("start", "end", "label")
        ]
        assert row["score"] == pytest.approx(expected["score"], abs=1e-3)
