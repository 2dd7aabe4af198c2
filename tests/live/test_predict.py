"""`pjepa predict`: files that people and other tools can read."""

import csv
import json
import os
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pjepa.live.formats import (
    Labelled,
    PredictedStep,
    eaf_text,
    labelstudio_config,
    labelstudio_text,
    vtt_text,
)
from pjepa.live.models import LiveOptions, load_models
from pjepa.live.predict import predict_videos, video_tokens
from pjepa.live.predict import predicted as predict_video
from pjepa.select.familiar import fit_familiar
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, read_stream
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from pjepa.tools.cli import app
from pjepa.ui.console import InputError
from pjepa.video.index import frame_index
from tests.live.world import CLASSES, FPS, WIDTH, make_project, make_video
from tests.video.films import write_film


def predict(root, *arguments, cell="linear-raw"):
    command = ["predict", *arguments, "--model", root / "models"]
    command += ["--probe", root / "results/probe" / cell]
    command += ["--training", root / "data/tokens/stream.parquet"]
    return CliRunner().invoke(app, [str(word) for word in command])


def rows_of(out):
    with (out / "segments.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    root = tmp_path_factory.mktemp("predict")
    make_project(root)
    videos = [make_video(root / f"v/take {n}.mp4", 5.2 + n, seed=n) for n in range(2)]
    formats = [x for name in ("vtt", "eaf", "labelstudio") for x in ("--format", name)]
    arguments = [*videos, "--out", root / "out", *formats, "--min-step", 0]
    done = predict(root, *arguments, cell="linear-pjepa")
    assert done.exit_code == 0, done.output
    return root, root / "out"


@pytest.mark.parametrize("suffix", [".csv", ".vtt", ".eaf", ".json"])
def test_corrected_by_hand_or_not_the_folder_source_reads_them_back(predicted, tmp_path, suffix):
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "mine")
    (tmp_path / "mine/labels").mkdir()
    for file in (*out.glob(f"*{suffix}"), *([out / "labelstudio.xml"] * (suffix == ".json"))):
        shutil.copy(file, tmp_path / "mine/labels")
    for file in (tmp_path / "mine/labels").glob("*.json"):
        file.write_text(accepted(file.read_text()))
    own = {"path": "mine", "labels": "labels"}
    read = open_source(DataConfig.model_validate({"source": "folder", "folder": own}), tmp_path)
    segments = sorted(read.segments, key=lambda s: (s.take_id, s.start_s))
    rows = rows_of(out)
    assert [(s.take_id, read.classes.names[s.label]) for s in segments] == [
        (row["video"].removesuffix(".mp4"), row["label"]) for row in rows
    ]
    tolerance = 0.5 / FPS + 1e-9 if suffix == ".json" else 5e-4 + 1e-9
    for segment, row in zip(segments, rows, strict=True):
        assert abs(segment.start_s - float(row["start"])) <= tolerance
        assert abs(segment.end_s - float(row["end"])) <= tolerance
    assert len({row["label"] for row in rows}) > 1
    if suffix == ".json":
        (task,) = json.loads((out / "take 0.labelstudio.json").read_text())
        assert task["predictions"][0]["model_version"].startswith("linear-pjepa ")
        rate = f"timelines count at {FPS} frames per second (labelstudio.xml)"
        assert rate in read.notes[0].line()


def accepted(text):
    """The export of a task whose prediction somebody opened and submitted as it was."""
    tasks = json.loads(text)
    for number, task in enumerate(tasks, 1):
        result = [{**r, "origin": "prediction"} for r in task["predictions"][0]["result"]]
        task |= {"id": number, "annotations": [{"was_cancelled": False, "result": result}]}
    return json.dumps(tasks)


def test_every_video_has_scores_of_every_token_and_a_timeline(predicted):
    _, out = predicted
    assert (out / "take 0.png").read_bytes().startswith(b"\x89PNG")
    table = pq.read_table(out / "scores")
    assert json.loads(table.schema.metadata[b"classes"])["names"] == list(CLASSES.names)
    frame = table.to_pandas()
    scores = np.stack(frame["scores"].to_numpy())
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
    assert (scores.argmax(1) == frame["prediction"]).all()
    assert frame.groupby("video").size().to_dict() == {"take 0.mp4": 21, "take 1.mp4": 25}


def test_probes_that_see_the_whole_take_predict_too(predicted):
    root, _ = predicted
    cell = root / "results/probe/ltcontext-pjepa"
    models = load_models(LiveOptions(root / "models", cell, as_trained=True, segments="fixed"))
    assert predict_video(models, root / "v/take 0.mp4").scores.shape == (21, len(CLASSES.names))


def test_players_elan_and_label_studio_get_text_times_and_frames():
    hostile = "cut\x00\x1b[31m\u0085 \ud800it\n"  # control characters: XML holds none
    spans = [(0.0, 1.25, CLASSES.names[1], 0.5), (1.25, 3723.504, CLASSES.names[2], 0.9)]
    steps = [PredictedStep(*span) for span in (*spans, (3723.504, 3724.0, hostile, 0.9))]
    video = Labelled("a b.mp4", 12.0, steps)
    text = vtt_text(video)
    assert text.startswith("WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.250\ncut &lt;b&gt;&amp;\n")
    assert "00:00:01.250 --> 01:02:03.504" in text
    assert "cut [31m it" in text
    root = ET.fromstring(eaf_text(video))
    values = [node.text for node in root.iter("ANNOTATION_VALUE")]
    assert values == [*CLASSES.names[1:3], "cut [31m   it"]
    slots = [int(slot.get("TIME_VALUE")) for slot in root.iter("TIME_SLOT")]
    assert slots == [0, 1250, 1250, 3723504, 3723504, 3724000]
    assert "a%20b.mp4" in root.find("HEADER/MEDIA_DESCRIPTOR").get("RELATIVE_MEDIA_URL")
    (task,) = json.loads(labelstudio_text(video).encode())
    assert "annotations" not in task  # nobody has annotated anything
    assert task["data"] == {"video": "a b.mp4", "fps": 12.0}
    (prediction,) = task["predictions"]
    ranges = [result["value"]["ranges"][0] for result in prediction["result"]]
    assert (ranges[0], ranges[1]["start"]) == ({"start": 1, "end": 15}, 16)  # counted from 1
    assert [result["score"] for result in prediction["result"]] == [0.5, 0.9, 0.9]
    assert 0.5 < prediction["score"] <= 0.9  # of all steps, by their length
    config = ET.fromstring(labelstudio_config([*CLASSES.names, hostile]))
    labels = [label.get("value") for label in config.iter("Label")]
    assert labels[:-1] == [*CLASSES.names]
    assert config.find("Video").get("frameRate") == "$fps"  # of the task's data
    names = {result["from_name"] for result in prediction["result"]}
    assert names == {config.find("TimelineLabels").get("name")}


def test_nothing_that_is_there_is_replaced(predicted, tmp_path):
    """`--out` the folder of the videos, or a video: they must survive."""
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "v")
    video = tmp_path / "v/take 0.mp4"
    before = {file: file.read_bytes() for file in (tmp_path / "v").iterdir()}
    models = load_models(LiveOptions(root / "models", root / "results/probe/linear-raw"))
    for target in (tmp_path / "v", video):
        done = predict(root, video, "--out", target)
        assert (done.exit_code, "exists and is not empty" in done.output) == (1, True)
        with pytest.raises(InputError, match="not empty"):
            predict_videos(models, {"take 0": video}, target)
    with pytest.raises(InputError, match="predictions with another model"):
        predict_videos(models, {"take 0": video}, out)  # another probe, so another version
    assert {file: file.read_bytes() for file in (tmp_path / "v").iterdir()} == before
    other = shutil.copy(video, tmp_path)
    done = predict(root, video, other, "--out", tmp_path / "out")
    assert (done.exit_code, "have one name" in done.output) == (1, True)


@pytest.fixture
def films(predicted, tmp_path):
    """A folder of three videos."""
    for name in ("a.mp4", "day 1/b.mp4", "day 1/c.mkv"):
        (tmp_path / "films" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(predicted[0] / "v/take 0.mp4", tmp_path / "films" / name)
    return tmp_path / "films"


def test_a_folder_goes_on_past_bad_videos_and_where_it_stopped(predicted, films, tmp_path):
    root, out = predicted[0], tmp_path / "steps"
    (films / "day 1/bad.mp4").write_text("no video")
    (films / "day 1/empty.mp4").touch()
    other_encoding = films / os.fsdecode(b"caf\xe9.mp4")
    shutil.copy(root / "v/take 1.mp4", other_encoding)
    done = predict(root, films, tmp_path / "gone.mp4", "--out", out, "--format", "vtt")
    assert done.exit_code == 1
    for line in (
        r"caf\xe9.mp4: the name is not UTF-8 text; rename the video",
        "bad.mp4: cannot be decoded",
        "empty.mp4: the video file is empty",
        "gone.mp4: no such video",
        "predict: 4 videos cannot be read, listed above",
    ):
        assert line in done.output
    assert {row["video"] for row in rows_of(out)} == {"a.mp4", "day 1/b.mp4", "day 1/c.mkv"}
    assert (out / "day 1/c.vtt").exists()
    first = {file: file.stat().st_mtime_ns for file in out.rglob("*.p*") if file.is_file()}
    for name in ("bad", "empty"):
        (films / f"day 1/{name}.mp4").unlink()
    other_encoding.rename(films / "d.mp4")
    again = predict(root, films, "--out", out, "--format", "vtt")
    assert again.exit_code == 0, again.output
    assert "3 of them were done already" in again.output
    assert {row["video"] for row in rows_of(out)} >= {"a.mp4", "d.mp4"}
    assert {file: file.stat().st_mtime_ns for file in first} == first  # not written again
    assert min(float(row["end"]) - float(row["start"]) for row in rows_of(out)) >= 1
    other = predict(root, films, "--out", out, "--format", "vtt", "--min-step", 2)
    assert other.exit_code == 1
    assert "predictions with another min_step_s; name a new folder" in other.output


def test_a_run_that_dies_while_it_writes_leaves_whole_videos(predicted, films, tmp_path):
    """What cannot be written is no bad video: it ends the run, which goes on later."""
    root, out = predicted[0], tmp_path / "steps"
    assert predict(root, films / "a.mp4", "--out", out).exit_code == 0
    (out / "scores/day 1").write_text("in the way")
    done = predict(root, films, "--out", out)
    assert (done.exit_code, "cannot be read" in done.output) == (1, False)
    assert "cannot be written" in done.output
    assert {row["video"] for row in rows_of(out)} == {"a.mp4"}
    (out / "scores/day 1").unlink()
    assert "1 of them were done already" in predict(root, films, "--out", out).output
    assert len({row["video"] for row in rows_of(out)}) == 3


def test_replaced_videos_and_cut_tables_are_done_again_and_corrected_tables_kept(
    predicted, films, tmp_path
):
    root, out = predicted[0], tmp_path / "steps"
    assert predict(root, films, "--out", out).exit_code == 0
    table, before = out / "segments.csv", rows_of(out)
    shutil.copy(root / "v/take 1.mp4", films / "a.mp4")
    assert "2 of them were done already" in predict(root, films, "--out", out).output
    after = rows_of(out)
    assert next(row for row in after if row not in before)["video"] == "a.mp4"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:3]))
    assert "3 of them were done already" in predict(root, films, "--out", out).output
    assert rows_of(out) == after
    table.write_text(table.read_text().replace("background", "corrected", 1))
    refused = predict(root, films, "--out", out)
    assert (refused.exit_code, "was changed by hand" in refused.output) == (1, True)
    assert "corrected" in table.read_text()


@pytest.mark.slow
def test_a_video_unlike_the_training_ones_is_named(tmp_path):
    options = make_project(tmp_path)
    models, stream = load_models(options), tmp_path / "seen.parquet"
    with StreamWriter(stream, StreamInfo(source="test", fps=4.0, width=WIDTH), "float32") as writer:
        for seed in range(12):
            film = make_video(tmp_path / f"seen/{seed}.mp4", 12, seed)
            tokens = video_tokens(models, film, frame_index(film).info)
            place = np.zeros(len(tokens), np.int32)
            writer.write(Take(str(seed), tokens, np.arange(len(tokens)) / 4, place, place))
    make_video(tmp_path / "new/alike.mp4", 12, seed=12)
    write_film(tmp_path / "new/unlike.mp4")
    arguments = [tmp_path / "new", "--out"]
    unknown = predict(tmp_path, *arguments, tmp_path / "before", cell="linear-pjepa")
    assert "do not store what training videos are like" in unknown.stderr
    familiar = fit_familiar(read_stream(stream), {str(seed): str(seed) for seed in range(12)})
    familiar.save(options.model / "pjepa")
    done = predict(tmp_path, *arguments, tmp_path / "after", cell="linear-pjepa")
    assert done.exit_code == 0
    assert "1 of 2 videos are unlike the 12 training takes" in done.stderr
    assert "  unlike: " in done.stderr
    assert "  alike: " not in done.stderr
