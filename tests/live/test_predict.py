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
from pjepa.live.predict import model_version, predict_videos, video_tokens, write_scores
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
    arguments += ["--min-step", 0]
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 0, done.output
    return root, out


def test_files(predicted):
    _, out = predicted
    names = {
        f"take {n}{s}" for n in range(2) for s in (".png", ".vtt", ".eaf", ".labelstudio.json")
    }
    names |= {"segments.csv", "labelstudio.xml"}
    assert {file.name for file in out.iterdir() if file.is_file()} == names
    assert {file.name for file in (out / "scores").iterdir()} == {
        f"take {n}.parquet" for n in (0, 1)
    }
    assert (out / "take 0.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", [".csv", ".vtt", ".eaf", ".json"])
def test_corrected_by_hand_or_not_the_folder_source_reads_them_back(predicted, tmp_path, suffix):
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "mine")
    (tmp_path / "mine/labels").mkdir()
    for file in out.glob(f"*{suffix}"):
        shutil.copy(file, tmp_path / "mine/labels")
    if suffix == ".json":
        shutil.copy(out / "labelstudio.xml", tmp_path / "mine/labels")
        for file in (tmp_path / "mine/labels").glob("*.json"):
            file.write_text(accepted(file.read_text()))
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
    if suffix == ".json":
        assert (
            f"timelines count at {FPS} frames per second (labelstudio.xml)" in read.notes[0].line()
        )


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
    arguments = ["predict", *sorted((root / "v").iterdir()), "--out", tmp_path / "again"]
    arguments += ["--model", root / "models", "--probe", root / "results/probe/linear-pjepa"]
    arguments += ["--training", root / "data/tokens/stream.parquet", "--format", "eaf"]
    arguments += ["--min-step", 0]
    assert CliRunner().invoke(app, [str(x) for x in arguments]).exit_code == 0
    for file in [*(tmp_path / "again").glob("*.*"), *(tmp_path / "again/scores").iterdir()]:
        same = out / file.relative_to(tmp_path / "again")
        assert file.is_dir() or file.read_bytes() == same.read_bytes(), file.name


def test_probes_that_see_the_whole_take_predict_too(predicted):
    root, _ = predicted
    cell = root / "results/probe/ltcontext-pjepa"
    models = load_models(LiveOptions(root / "models", cell, as_trained=True, segments="fixed"))
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


def test_label_studio_gets_predictions_that_count_frames_from_one():
    (task,) = json.loads(labelstudio_text(FOUND))
    assert "annotations" not in task  # nobody has annotated anything
    (prediction,) = task["predictions"]
    ranges = [r["value"]["ranges"][0] for r in prediction["result"]]
    assert ranges[0] == {"start": 1, "end": 15}
    assert ranges[1]["start"] == 16
    assert [r["score"] for r in prediction["result"]] == [0.5, 0.9]
    assert 0.5 < prediction["score"] <= 0.9  # of all steps, by their length
    assert prediction["model_version"] == "pjepa"
    assert task["data"] == {"video": "a b.mp4", "fps": 12.0}
    config = ET.fromstring(labelstudio_config(CLASSES.names))
    assert [label.get("value") for label in config.iter("Label")] == [*CLASSES.names]
    assert config.find("Video").get("frameRate") == "$fps"  # of the task's data, just above
    names = {r["from_name"] for r in prediction["result"]}
    assert names == {config.find("TimelineLabels").get("name")}


def test_the_model_version_tells_probes_and_weights_apart(predicted):
    root, out = predicted
    (task,) = json.loads((out / "take 0.labelstudio.json").read_text())
    told = task["predictions"][0]["model_version"]
    assert told.startswith("linear-pjepa ")
    other = load_models(LiveOptions(root / "models", root / "results/probe/linear-raw"))
    assert model_version(other) != told


def test_control_characters_leave_files_readable():
    label = "cut\x00\x1b[31m\u0085 \ud800it\n"
    found = Labelled("a.mp4", 10.0, [PredictedStep(0.0, 1.0, label, 0.5)])
    assert ET.fromstring(eaf_text(found)).find(".//ANNOTATION_VALUE").text == "cut [31m   it"
    assert "cut [31m it" in vtt_text(found)
    assert json.loads(labelstudio_text(found).encode())
    ET.fromstring(labelstudio_config([label]))


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
    assert f"{video}: " in done.output
    assert reason in done.output
    assert not list((tmp_path / "out").glob("*.csv"))


def test_nothing_that_is_there_is_replaced(predicted, tmp_path):
    """`--out` the folder of the videos, or a video: they must survive."""
    root, out = predicted
    shutil.copytree(root / "v", tmp_path / "v")
    video = tmp_path / "v/take 0.mp4"
    before = {file: file.read_bytes() for file in (tmp_path / "v").iterdir()}
    models = load_models(LiveOptions(root / "models", root / "results/probe/linear-raw"))
    for target in (tmp_path / "v", video):
        arguments = ["predict", video, "--out", target, "--model", root / "models"]
        arguments += ["--probe", root / "results/probe/linear-raw"]
        done = CliRunner().invoke(app, [str(x) for x in arguments])
        assert (done.exit_code, "exists and is not empty" in done.output) == (1, True)
        with pytest.raises(InputError, match="not empty"):
            predict_videos(models, {"take 0": video}, target)
    with pytest.raises(InputError, match="predictions with another model"):
        predict_videos(models, {"take 0": video}, out)
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
    assert "have one name" in done.output


class Runner:
    """`pjepa predict` with the models of a project; a folder of three videos to begin with."""

    def __init__(self, root, films):
        self.root, self.films, self.out = root, films, films.parent / "steps"
        for name in ("a.mp4", "day 1/b.mp4", "day 1/c.mkv"):
            (films / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / "v/take 0.mp4", films / name)

    def __call__(self, *more):
        arguments = ["predict", self.films, "--out", self.out, "--model", self.root / "models"]
        arguments += ["--probe", self.root / "results/probe/linear-raw", *more]
        return CliRunner().invoke(app, [str(x) for x in arguments])

    def rows(self):
        with (self.out / "segments.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def files(self):
        return {file: file.stat().st_mtime_ns for file in self.out.rglob("*.p*") if file.is_file()}


def test_a_folder_goes_on_past_bad_videos_and_where_it_stopped(predicted, tmp_path):
    predict = Runner(predicted[0], tmp_path / "films")
    bad = predict.films / "day 1/bad.mp4"
    bad.write_text("no video")
    other_encoding = predict.films / os.fsdecode(b"caf\xe9.mp4")
    shutil.copy(predicted[0] / "v/take 1.mp4", other_encoding)
    done = predict(tmp_path / "gone.mp4", "--format", "vtt")
    assert done.exit_code == 1
    assert r"caf\xe9.mp4: the name is not UTF-8 text; rename the video" in done.output
    assert "bad.mp4: cannot be decoded" in done.output
    assert "gone.mp4: no such video" in done.output
    assert "predict: 3 videos cannot be read, listed above" in done.output
    assert {row["video"] for row in predict.rows()} == {"a.mp4", "day 1/b.mp4", "day 1/c.mkv"}
    assert (predict.out / "day 1/c.vtt").exists()
    first = predict.files()
    bad.unlink()
    other_encoding.unlink()
    shutil.copy(predicted[0] / "v/take 1.mp4", predict.films / "d.mp4")
    again = predict("--format", "vtt")
    assert again.exit_code == 0, again.output
    assert "3 of them were done already" in again.output
    assert {row["video"] for row in predict.rows()} >= {"a.mp4", "d.mp4"}
    assert {file: predict.files()[file] for file in first} == first  # not written again
    assert min(float(row["end"]) - float(row["start"]) for row in predict.rows()) >= 1
    other = predict("--format", "vtt", "--min-step", "2")
    assert other.exit_code == 1
    assert "predictions with another min_step_s; name a new folder" in other.output


def test_a_video_that_was_replaced_is_done_again(predicted, tmp_path):
    predict = Runner(predicted[0], tmp_path / "films")
    assert predict().exit_code == 0
    before = [row for row in predict.rows() if row["video"] == "a.mp4"]
    shutil.copy(predicted[0] / "v/take 1.mp4", predict.films / "a.mp4")
    again = predict()
    assert "2 of them were done already" in again.output
    assert [row for row in predict.rows() if row["video"] == "a.mp4"] != before


def test_a_run_that_is_killed_leaves_whole_videos(predicted, tmp_path, monkeypatch):
    """The second video dies while its files are written; the first is there, and is kept."""
    predict = Runner(predicted[0], tmp_path / "films")
    written = []

    def dies(path, *arguments):
        written.append(path.name)
        if len(written) == 2:
            raise KeyboardInterrupt
        real(path, *arguments)

    real = write_scores
    monkeypatch.setattr("pjepa.live.predict.write_scores", dies)
    assert predict().exit_code == 130
    assert {row["video"] for row in predict.rows()} == {"a.mp4"}
    monkeypatch.undo()
    assert "1 of them were done already" in predict().output
    assert len({row["video"] for row in predict.rows()}) == 3


def test_killed_before_the_table_was_written_it_is_made_whole(predicted, tmp_path):
    predict = Runner(predicted[0], tmp_path / "films")
    assert predict().exit_code == 0
    whole = predict.rows()
    table = predict.out / "segments.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:3]))
    assert "3 of them were done already" in predict().output
    assert predict.rows() == whole


def test_a_disk_that_is_full_is_no_bad_video(predicted, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pjepa.live.predict.write_scores", full)
    done = Runner(predicted[0], tmp_path / "films")()
    assert done.exit_code == 1
    assert "error: No space left on device" in done.output
    assert "cannot be read" not in done.output


def test_a_table_corrected_by_hand_is_not_lost(predicted, tmp_path):
    predict = Runner(predicted[0], tmp_path / "films")
    assert predict().exit_code == 0
    table = predict.out / "segments.csv"
    table.write_text(table.read_text().replace("background", "corrected", 1))
    refused = predict()
    assert refused.exit_code == 1
    assert "was changed by hand" in refused.output
    assert "corrected" in table.read_text()


@pytest.mark.slow
def test_a_video_unlike_the_training_ones_is_named(tmp_path):
    wanted = make_project(tmp_path)
    models, stream = load_models(wanted), tmp_path / "seen.parquet"
    with StreamWriter(stream, StreamInfo(source="test", fps=4.0, width=WIDTH), "float32") as writer:
        for seed in range(12):
            film = make_video(tmp_path / f"seen/{seed}.mp4", 12, seed)
            tokens = video_tokens(models, film, frame_index(film).info)
            place = np.zeros(len(tokens), np.int32)
            writer.write(Take(str(seed), tokens, np.arange(len(tokens)) / 4, place, place))
    known = fit_familiar(read_stream(stream), {str(seed): str(seed) for seed in range(12)})
    make_video(tmp_path / "new/alike.mp4", 12, seed=12)
    write_film(tmp_path / "new/unlike.mp4")
    arguments = ["predict", tmp_path / "new", "--model", wanted.model, "--probe", wanted.cell]
    arguments = [str(x) for x in (*arguments, "--training", wanted.training, "--out")]
    unknown = CliRunner().invoke(app, [*arguments, str(tmp_path / "before")])
    assert "do not store what training videos are like" in unknown.stderr
    known.save(wanted.model / "pjepa")
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "after")])
    assert done.exit_code == 0
    assert "1 of 2 videos are unlike the 12 training takes" in done.stderr
    assert "  unlike: " in done.stderr
    assert "  alike: " not in done.stderr
