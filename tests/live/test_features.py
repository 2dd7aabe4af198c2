"""`pjepa extract --model`: features of a new video are those that the pipeline would write."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from pjepa.core.tables import VideoRow
from pjepa.features.encoded import encoded
from pjepa.live.models import LiveOptions, load_models
from pjepa.live.predict import video_tokens
from pjepa.model.encoder import ProcedureEncoder
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.store import take_file_name
from pjepa.pooler.stored import load_pooler
from pjepa.storage.reading import read_json
from pjepa.storage.writing import write_json
from pjepa.streams.stream import Take, read_stream
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import materialised_takes
from pjepa.tokens.placement import grid_times, placed_takes
from pjepa.tools.cli import app
from pjepa.video.index import frame_index
from tests.live.world import PATCHES, make_action_pooler, make_project, make_video
from tests.patches.patch_infos import inline


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pjepa.patches.local.chosen_executor", lambda config: inline)


def extracted(video: Path, wanted: LiveOptions, out: Path, *more: object) -> Result:
    arguments = ["extract", video, "--model", wanted.model, "--out", out, *more]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def made(root: Path, **changes) -> LiveOptions:
    wanted = make_project(root, **changes)
    write_json(root / "models/pjepa/selection.json", {"selection_labels": "holdout"})
    return wanted


def pipeline_take(root: Path, video: Path, per_step: int) -> Take:
    """The take as the stages `patches` and `tokens` make it."""
    row = VideoRow("v", video.name, 15.0, frame_index(video).info.duration_s)
    target = root / "patches" / take_file_name("v")
    job = Job("v", video.name, video, row.duration_s, None, target)
    assert encoded_job(job, PATCHES, backbone_facts(PATCHES), lambda n: None).reason is None
    tokens = TokensConfig(fps=4.0 * per_step)
    placed = placed_takes(grid_times([row], tokens.fps), {}, tokens)
    pooler = load_pooler(root / "models/pooler")
    (take,) = materialised_takes([row], placed, {}, root / "patches", tokens.fps, pooler, {})
    return take


@pytest.mark.parametrize("per_step", [1, 2])
def test_features_are_those_of_the_stages(tmp_path: Path, per_step: int) -> None:
    wanted = made(tmp_path, segments="fixed")
    make_action_pooler(tmp_path, 8, per_step)
    video = make_video(tmp_path / "v.mp4", 5.2)
    take = pipeline_take(tmp_path, video, per_step)
    out = tmp_path / "out"
    done = extracted(video, wanted, out, "--representation", "raw", "--batch-windows", 4)
    assert done.exit_code == 0, done.output
    tokens = np.load(out / "v.npy")
    np.testing.assert_array_equal(tokens, take.features)
    again = extracted(video, wanted, out, "--batch-windows", 4, "--format", "parquet")
    assert again.exit_code == 0, again.output
    encoder = ProcedureEncoder.from_pretrained(wanted.model / "pjepa")
    written = read_stream(out / "v.parquet")
    features = written.read("v")
    np.testing.assert_array_equal(features.features, encoded(encoder, take))
    np.testing.assert_array_equal(features.times, take.times)
    assert written.info.fps == 4.0 * per_step
    models = load_models(LiveOptions(**{**vars(wanted), "as_trained": True}))
    np.testing.assert_allclose(
        video_tokens(models, video, frame_index(video).info), tokens, atol=1e-4
    )


def test_the_sidecar_tells_models_labels_and_lookahead(tmp_path: Path) -> None:
    wanted = made(tmp_path)  # trained on annotated segments
    config = read_json(tmp_path / "models/pooler/config.json")
    config["provenance"] |= {"train_labels": True}
    write_json(tmp_path / "models/pooler/config.json", config)
    video, out = make_video(tmp_path / "v.mp4", 5.2), tmp_path / "out"
    done = extracted(video, wanted, out, "--training", wanted.training)
    assert done.exit_code == 0, done.output
    assert "trained on annotated segments; ones found by change replace them" in done.stderr
    told = json.loads((out / "v.npy.json").read_text())
    assert told["models"]["segments"]["kind"] == "found"
    assert len(told["models"]["encoder"]["sha256"]) == 64
    assert told["models"]["pooler"]["sha256"] == load_pooler(wanted.model / "pooler").facts.sha256
    seen = told["provenance"]
    assert (seen["train_labels"], seen["selection_labels"]) == (True, "holdout")
    assert (seen["boundaries_train"], seen["boundaries_test"]) == ("annotated", "found")
    assert told["lookahead_s"] == 1.0 + 12 / 4  # a window, and the longest found segment
    first = np.load(out / "v.npy")
    fixed = extracted(video, wanted, out, "--segments", "fixed", "--segment-tokens", 5)
    assert fixed.exit_code == 0
    assert "done already" not in fixed.stderr
    assert not np.array_equal(first, np.load(out / "v.npy"))
    told = json.loads((out / "v.npy.json").read_text())
    assert told["models"]["segments"] == {"kind": "fixed", "tokens": 5}
    assert told["lookahead_s"] == 1.0 + 5 / 4
    same = extracted(video, wanted, out, "--segments", "fixed", "--segment-tokens", 5)
    assert "1 of 1 videos are done already" in same.stderr
    whole = made(tmp_path, attention="bidirectional", positions="1d")
    assert extracted(video, whole, tmp_path / "whole").exit_code == 0
    told = json.loads((tmp_path / "whole/v.npy.json").read_text())
    assert (told["lookahead_s"], told["models"]["segments"]) == (None, None)
    assert told["provenance"]["whole_take"]


def test_options_without_effect_and_other_weights_are_refused(tmp_path: Path) -> None:
    wanted = made(tmp_path, segments="fixed")
    video, out = make_video(tmp_path / "v.mp4", 1.0), tmp_path / "out"
    for option in ("--fps", "--frames-per-window"):
        refused = extracted(video, wanted, out, option, "16")
        assert (refused.exit_code, f"{option} is fixed by" in refused.stderr) == (1, True)
    config = read_json(tmp_path / "models/pooler/config.json")
    config["patches"]["weights_id"] = "0123"
    write_json(tmp_path / "models/pooler/config.json", config)
    other = extracted(video, wanted, out)
    nothing = extracted(video, LiveOptions(tmp_path / "nosuch"), out)
    assert (other.exit_code, nothing.exit_code, out.exists()) == (1, 1, False)
    assert "the pooler was made with weights 0123" in other.stderr
    assert "nosuch" in nothing.stderr
