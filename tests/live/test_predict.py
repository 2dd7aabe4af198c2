"""`pjepa predict`: files that people and other tools can read."""

import csv
import json
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pjepa.cli import app
from pjepa.config.data import DataConfig
from pjepa.errors import InputError
from pjepa.live.formats import Labelled, Step, eaf_text, labelstudio_text, vtt_text
from pjepa.live.models import Wanted, load_models
from pjepa.live.predict import predict_videos
from pjepa.live.predict import predicted as predict_video
from pjepa.takes.registry import open_source
from tests.live.world import CLASSES, FPS, make_project, make_video

STEPS = [Step(0.0, 1.25, CLASSES.names[1], 0.5), Step(1.25, 3723.504, CLASSES.names[2], 0.9)]
FOUND = Labelled("a b.mp4", 12.0, STEPS)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    root = tmp_path_factory.mktemp("predict")
    found = make_project(root)
    videos = [make_video(root / f"v/take {n}.mp4", 5.2 + n, seed=n) for n in range(2)]
    out = root / "out"
    arguments = ["predict", *videos, "--out", out, "--model", found.model]
    arguments += ["--probe", root / "results/probe/linear-pjepa", "--training", found.training]
    arguments += [x for name in ("vtt", "eaf", "labelstudio") for x in ("--format", name)]
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 0, done.output
    return root, out


def test_files(predicted):
    _, out = predicted
    names = {
        f"take {n}{s}" for n in range(2) for s in (".png", ".vtt", ".eaf", ".labelstudio.json")
    }
    assert {file.name for file in out.iterdir()} == names | {"segments.csv", "scores.parquet"}
    assert (out / "take 0.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", [".csv", ".vtt", ".eaf", ".json"])
def test_corrected_by_hand_or_not_the_folder_source_reads_them_back(predicted, tmp_path, suffix):
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "mine")
    (tmp_path / "mine/labels").mkdir()
    for file in out.glob(f"*{suffix}"):
        shutil.copy(file, tmp_path / "mine/labels")
    own = {"path": "mine", "labels": "labels"}
    read = open_source(DataConfig.model_validate({"source": "folder", "folder": own}), tmp_path)
    found = [
        (s.take_id, s.start_s, s.end_s, read.classes.names[s.label])
        for s in sorted(read.segments, key=lambda s: (s.take_id, s.start_s))
    ]
    with (out / "segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(take, label) for take, _, _, label in found] == [
        (row["video"].removesuffix(".mp4"), row["label"]) for row in rows
    ]
    half_frame = 0.5 / FPS if suffix == ".json" else 5e-4
    for (_, start, end, _), row in zip(found, rows, strict=True):
        assert abs(start - float(row["start"])) <= half_frame + 1e-9
        assert abs(end - float(row["end"])) <= half_frame + 1e-9
    assert len({row["label"] for row in rows}) > 1
    assert not read.notes or "split" in " ".join(read.notes)


def test_scores_are_probabilities_of_every_token(predicted):
    table = pq.read_table(predicted[1] / "scores.parquet")
    assert json.loads(table.schema.metadata[b"classes"])["names"] == list(CLASSES.names)
    frame = table.to_pandas()
    scores = np.stack(frame["scores"].to_numpy())
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
    assert (scores.argmax(1) == frame["prediction"]).all()
    assert frame.groupby("video").size().to_dict() == {"take 0.mp4": 21, "take 1.mp4": 25}


def test_the_same_bytes_again(predicted, tmp_path):
    root, out = predicted
    arguments = ["predict", *sorted((root / "v").iterdir()), "--out", tmp_path / "again"]
    arguments += ["--model", root / "models", "--probe", root / "results/probe/linear-pjepa"]
    arguments += ["--training", root / "data/tokens/stream.parquet", "--format", "eaf"]
    assert CliRunner().invoke(app, [str(x) for x in arguments]).exit_code == 0
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (out / file.name).read_bytes(), file.name


def test_probes_that_see_the_whole_take_predict_too(predicted):
    root, _ = predicted
    cell = root / "results/probe/ltcontext-pjepa"
    models = load_models(Wanted(root / "models", cell, as_trained=True, segments="fixed"))
    found = predict_video(models, root / "v/take 0.mp4")
    assert found.scores.shape == (21, len(CLASSES.names))


def test_vtt_escapes_and_counts_time():
    text = vtt_text(FOUND)
    assert text.startswith("WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.250\ncut &lt;b&gt;&amp;\n")
    assert "00:00:01.250 --> 01:02:03.504" in text


def test_eaf_holds_labels_as_they_are():
    root = ET.fromstring(eaf_text(FOUND))
    values = [node.text for node in root.iter("ANNOTATION_VALUE")]
    assert values == [step.label for step in STEPS]
    slots = {s.get("TIME_SLOT_ID"): int(s.get("TIME_VALUE")) for s in root.iter("TIME_SLOT")}
    assert list(slots.values()) == [0, 1250, 1250, 3723504]
    assert "a%20b.mp4" in root.find("HEADER/MEDIA_DESCRIPTOR").get("RELATIVE_MEDIA_URL")


def test_label_studio_counts_frames_from_one():
    (task,) = json.loads(labelstudio_text(FOUND))
    ranges = [r["value"]["ranges"][0] for r in task["annotations"][0]["result"]]
    assert ranges[0] == {"start": 1, "end": 15}
    assert ranges[1]["start"] == 16
    assert task["data"]["video"] == "a b.mp4"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "no such video"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_text("text"), "cannot be decoded"),
    ],
)
def test_bad_videos_are_one_line(predicted, tmp_path, make, reason):
    root, _ = predicted
    video = tmp_path / "bad.mp4"
    make(video)
    arguments = ["predict", video, "--out", tmp_path / "out", "--model", root / "models"]
    arguments += ["--probe", root / "results/probe/linear-raw"]
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 1
    assert f"error: {video}" in done.output
    assert reason in done.output
    assert not (tmp_path / "out").exists()


def test_nothing_that_is_there_is_replaced(predicted, tmp_path):
    """`--out` the folder of the videos, or a video: they must survive."""
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "v")
    video = tmp_path / "v/take 0.mp4"
    before = {file: file.read_bytes() for file in (tmp_path / "v").iterdir()}
    models = load_models(Wanted(root / "models", root / "results/probe/linear-raw"))
    for target in (tmp_path / "v", video, out):
        arguments = ["predict", video, "--out", target, "--model", root / "models"]
        arguments += ["--probe", root / "results/probe/linear-raw"]
        done = CliRunner().invoke(app, [str(x) for x in arguments])
        assert (done.exit_code, "is there and not empty" in done.output) == (1, True)
        with pytest.raises(InputError, match="not empty"):
            predict_videos(models, [video], target)
    assert {file: file.read_bytes() for file in (tmp_path / "v").iterdir()} == before


def test_two_videos_of_one_name_are_refused(predicted, tmp_path):
    root, _ = predicted
    first = root / "v/take 0.mp4"
    other = tmp_path / "take 0.mp4"
    other.write_bytes(first.read_bytes())
    arguments = ["predict", first, other, "--out", tmp_path / "out", "--model", root / "models"]
    arguments += ["--probe", root / "results/probe/linear-raw"]
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 1
    assert "several videos are called take 0" in done.output
