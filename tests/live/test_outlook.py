"""Next step, progress and surprise of new video: streamed as offline, where a run has them."""

import csv

import numpy as np
import pytest
import torch

from pjepa.live.models import load_models
from pjepa.live.outlook import ABOUT, NEXT, PROGRESS, Outlook, Ridge, encoder_id
from pjepa.live.predict import predict_videos
from pjepa.live.session import Options, Session
from pjepa.live.view import LiveNumbers, LiveView, outlook_line
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import HEADS, NeighbourHeads
from pjepa.probes.linear.probe import LinearProbe
from pjepa.storage.writing import write_json
from tests.live.test_session import lines, run, wanted
from tests.live.world import CLASSES, make_project, make_video, stop_after

FIELDS = ("next", "next_score", "progress", "surprise")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("outlook")
    found = make_project(root)
    model, questions = root / "models/pjepa", root / "results/questions"
    config = ProcedureEncoder.from_pretrained(model).config
    torch.manual_seed(1)
    NeighbourHeads(config.width, config.d_in, (-1, 1)).save(model)
    weight = torch.randn(len(CLASSES.names), config.width)
    still = torch.zeros(len(weight)), torch.zeros(config.width), torch.ones(config.width)
    LinearProbe(weight, *still).save(questions / NEXT)
    width = config.width + 3
    draw = np.random.default_rng(0)
    line = draw.normal(0, 0.02, width), np.asarray(0.4), np.zeros(width), np.ones(width)
    Ridge(*line).save(questions / PROGRESS)
    write_json(questions / ABOUT, {"encoder": encoder_id(model)})
    found = type(found)(**{**vars(found), "questions": questions})
    return root, found, make_video(root / "v/x.mp4", 20.3)


def offline(models, project, out):
    predict_videos(models, {"x": project[2]}, out)
    with (out / "outlook/x.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("cell", ["linear-pjepa", "ltcausal-pjepa"])
def test_a_stream_tells_what_offline_tells(project, tmp_path, cell):
    models = load_models(wanted(project, cell))
    _, _, rows = run(models, project[2], tmp_path)
    expected = offline(models, project, tmp_path / "out")
    assert len(rows) == len(expected)
    assert [row["next"] for row in rows] == [row["next"] for row in expected]
    for name in FIELDS[1:]:
        streamed = [row[name] for row in rows]
        np.testing.assert_allclose(streamed, [float(row[name]) for row in expected], atol=2e-4)
    assert max(row["surprise"] for row in rows) > 0
    if cell == "linear-pjepa":  # the other probe tells one long step
        assert len({row["progress"] for row in rows}) > 3


@pytest.mark.parametrize("cell", ["linear-pjepa", "ltcausal-pjepa"])
def test_a_session_that_was_stopped_goes_on(project, tmp_path, cell):
    models = load_models(wanted(project, cell))
    _, _, whole = run(models, project[2], tmp_path)
    options = {"jsonl": tmp_path / "cut.jsonl", "state": tmp_path / "state"}
    session = Session(models, str(project[2]), Options(quiet=True, **options))
    stop_after(session, 5)
    assert session.run()["status"] == "stopped"
    run(models, project[2], tmp_path, **options)
    again = lines(options["jsonl"])
    assert [[row[f] for f in FIELDS] for row in again] == [
        [row[f] for f in FIELDS] for row in whole
    ]


def test_a_run_shows_only_what_it_has(project, tmp_path):
    _, found, video = project
    alone = load_models(type(found)(**{**vars(found), "questions": tmp_path / "none"}))
    _, _, rows = run(alone, video, tmp_path)
    assert "surprise" in rows[0]
    assert "next" not in rows[0]
    other = tmp_path / "questions"
    write_json(other / ABOUT, {"encoder": "of another run"})
    assert load_models(type(found)(**{**vars(found), "questions": other})).outlook.next is None
    assert load_models(wanted(project, "linear-raw")).outlook == Outlook()
    heads = found.model / "pjepa" / HEADS
    heads.rename(tmp_path / HEADS)
    try:
        _, _, rows = run(load_models(found), video, tmp_path)
    finally:
        (tmp_path / HEADS).rename(heads)
    assert "next" in rows[0]
    assert "surprise" not in rows[0]


def test_the_outlook_in_words():
    told = {"next": "pour\nit", "next_score": 0.611, "progress": 0.4, "surprise": 0.123}
    assert outlook_line(told) == "next pour it 0.61, 40% done, surprise 0.12"
    assert outlook_line({"surprise": 0.5}) == "surprise 0.50"
    assert outlook_line({}) == ""
    shown = [str(part) for part in LiveView().drawn(LiveNumbers(outlook=told)).renderables]
    assert "next pour it 0.61, 40% done, surprise 0.12" in shown
