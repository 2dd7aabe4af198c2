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
from pjepa.live.predict import model_version, predict_videos, video_tokens
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

STEPS = [
    PredictedStep(0.0, 1.25, CLASSES.names[1], 0.5),
    PredictedStep(1.25, 3723.504, CLASSES.names[2], 0.9),
]
LABELLED = Labelled("a b.mp4", 12.0, STEPS)


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


def test_files(predicted):
    _, out = predicted
    endings = (".png", ".vtt", ".eaf", ".labelstudio.json")
    names = {f"take {n}{ending}" for n in range(2) for ending in endings}
    names |= {"segments.csv", "labelstudio.xml"}
    assert {file.name for file in out.iterdir() if file.is_file()} == names
    assert {f.name for f in (out / "scores").iterdir()} == {f"take {n}.parquet" for n in (0, 1)}
    assert (out / "take 0.png").read_bytes().startswith(b"\x89PNG")


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
        rate = f"timelines count at {FPS} frames per second (labelstudio.xml)"
        assert rate in read.notes[0].line()


def accepted(text):
    """The export of a task whose prediction somebody opened and submitted as it was."""
    tasks = json.loads(text)
    for number, task in enumerate(tasks, 1):
        result = [{**r, "origin": "prediction"} for r in task["predictions"][0]["result"]]
        task |= {"id": number, "annotations": [{"was_cancelled": False, "result": result}]}
    return json.dumps(tasks)


def test_scores_are_probabilities_of_every_token(predicted):
    table = pq.read_table(predicted[1] / "scores")
    assert json.loads(table.schema.metadata[b"classes"])["names"] == list(CLASSES.names)
    frame = table.to_pandas()
    scores = np.stack(frame["scores"].to_numpy())
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
    assert (scores.argmax(1) == frame["prediction"]).all()
    assert frame.groupby("video").size().to_dict() == {"take 0.mp4": 21, "take 1.mp4": 25}


def test_the_same_bytes_again(predicted, tmp_path):
    root, out = predicted
    videos = sorted((root / "v").iterdir())
    more = ["--format", "eaf", "--min-step", 0]
    again = predict(root, *videos, "--out", tmp_path / "again", *more, cell="linear-pjepa")
    assert again.exit_code == 0
    for file in [*(tmp_path / "again").glob("*.*"), *(tmp_path / "again/scores").iterdir()]:
        same = out / file.relative_to(tmp_path / "again")
        assert file.is_dir() or file.read_bytes() == same.read_bytes(), file.name


def test_probes_that_see_the_whole_take_predict_too(predicted):
    root, _ = predicted
    cell = root / "results/probe/ltcontext-pjepa"
    models = load_models(LiveOptions(root / "models", cell, as_trained=True, segments="fixed"))
    assert predict_video(models, root / "v/take 0.mp4").scores.shape == (21, len(CLASSES.names))


def test_vtt_escapes_and_counts_time():
    text = vtt_text(LABELLED)
    assert text.startswith("WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.250\ncut &lt;b&gt;&amp;\n")
    assert "00:00:01.250 --> 01:02:03.504" in text


def test_eaf_holds_labels_as_they_are():
    root = ET.fromstring(eaf_text(LABELLED))
    values = [node.text for node in root.iter("ANNOTATION_VALUE")]
    assert values == [step.label for step in STEPS]
    slots = {s.get("TIME_SLOT_ID"): int(s.get("TIME_VALUE")) for s in root.iter("TIME_SLOT")}
    assert list(slots.values()) == [0, 1250, 1250, 3723504]
    assert "a%20b.mp4" in root.find("HEADER/MEDIA_DESCRIPTOR").get("RELATIVE_MEDIA_URL")


def test_label_studio_gets_predictions_that_count_frames_from_one():
    (task,) = json.loads(labelstudio_text(LABELLED))
    assert "annotations" not in task  # nobody has annotated anything
    (prediction,) = task["predictions"]
    ranges = [r["value"]["ranges"][0] for r in prediction["result"]]
    assert (ranges[0], ranges[1]["start"]) == ({"start": 1, "end": 15}, 16)
    assert [r["score"] for r in prediction["result"]] == [0.5, 0.9]
    assert 0.5 < prediction["score"] <= 0.9  # of all steps, by their length
    assert prediction["model_version"] == "pjepa"
    assert task["data"] == {"video": "a b.mp4", "fps": 12.0}
    config = ET.fromstring(labelstudio_config(CLASSES.names))
    assert [label.get("value") for label in config.iter("Label")] == [*CLASSES.names]
    assert config.find("Video").get("frameRate") == "$fps"  # of the task's data, just above
    names = {r["from_name"] for r in prediction["result"]}
    assert names == {config.find("TimelineLabels").get("name")}


def test_control_characters_leave_files_readable():
    label = "cut\x00\x1b[31m\u0085 \ud800it\n"
    video = Labelled("a.mp4", 10.0, [PredictedStep(0.0, 1.0, label, 0.5)])
    assert ET.fromstring(eaf_text(video)).find(".//ANNOTATION_VALUE").text == "cut [31m   it"
    assert "cut [31m it" in vtt_text(video)
    assert json.loads(labelstudio_text(video).encode())
    ET.fromstring(labelstudio_config([label]))


def test_the_model_version_tells_probes_and_weights_apart(predicted):
    root, out = predicted
    (task,) = json.loads((out / "take 0.labelstudio.json").read_text())
    version = task["predictions"][0]["model_version"]
    assert version.startswith("linear-pjepa ")
    other = load_models(LiveOptions(root / "models", root / "results/probe/linear-raw"))
    assert model_version(other) != version


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "no such video"), (b"", "empty"), (b"text", "cannot be decoded")],
)
def test_bad_videos_are_one_line(predicted, tmp_path, content, reason):
    video, out = tmp_path / "bad.mp4", tmp_path / "out"
    if content is not None:
        video.write_bytes(content)
    done = predict(predicted[0], video, "--out", out)
    assert (done.exit_code, f"{video}: " in done.output, reason in done.output) == (1, True, True)
    assert not list(out.glob("*.csv"))


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
        predict_videos(models, {"take 0": video}, out)
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
    other_encoding = films / os.fsdecode(b"caf\xe9.mp4")
    shutil.copy(root / "v/take 1.mp4", other_encoding)
    done = predict(root, films, tmp_path / "gone.mp4", "--out", out, "--format", "vtt")
    assert done.exit_code == 1
    for line in (
        r"caf\xe9.mp4: the name is not UTF-8 text; rename the video",
        "bad.mp4: cannot be decoded",
        "gone.mp4: no such video",
        "predict: 3 videos cannot be read, listed above",
    ):
        assert line in done.output
    assert {row["video"] for row in rows_of(out)} == {"a.mp4", "day 1/b.mp4", "day 1/c.mkv"}
    assert (out / "day 1/c.vtt").exists()
    first = {file: file.stat().st_mtime_ns for file in out.rglob("*.p*") if file.is_file()}
    (films / "day 1/bad.mp4").unlink()
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


def test_a_video_that_was_replaced_is_done_again(predicted, films, tmp_path):
    root, out = predicted[0], tmp_path / "steps"
    assert predict(root, films, "--out", out).exit_code == 0
    before = [row for row in rows_of(out) if row["video"] == "a.mp4"]
    shutil.copy(root / "v/take 1.mp4", films / "a.mp4")
    assert "2 of them were done already" in predict(root, films, "--out", out).output
    assert [row for row in rows_of(out) if row["video"] == "a.mp4"] != before


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


def test_a_table_that_was_cut_is_made_whole_and_one_corrected_by_hand_is_kept(
    predicted, films, tmp_path
):
    root, out = predicted[0], tmp_path / "steps"
    assert predict(root, films, "--out", out).exit_code == 0
    table, whole = out / "segments.csv", rows_of(out)
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:3]))
    assert "3 of them were done already" in predict(root, films, "--out", out).output
    assert rows_of(out) == whole
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
