"""The whole stack: frames to labels, equal to offline, whatever happens on the way."""

import csv
import io
import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pjepa.core.tables import Classes, write_classes
from pjepa.live.models import LiveOptions, live_windows, load_models
from pjepa.live.outlook import ABOUT, Outlook
from pjepa.live.predict import predict_videos, predicted
from pjepa.live.session import Options, Session
from pjepa.live.source import Pipe
from pjepa.live.view import LiveNumbers, LiveView, clock, outlook_line
from pjepa.model.neighbours import HEADS
from pjepa.storage.reading import read_tensors
from pjepa.storage.writing import write_json, write_tensors
from pjepa.ui.console import InputError
from tests.live.world import (
    CLASSES,
    make_action_pooler,
    make_project,
    make_video,
    stop_after,
    wait_for,
)
from tests.storage.flip import flip

FIELDS = ("next", "next_score", "progress", "surprise")
CELLS = ("linear-pjepa", "attentive-pjepa", "ltcausal-pjepa", "linear-raw", "ltcausal-raw")


@pytest.fixture(scope="module")
def whole(project, tmp_path_factory):
    """The usual models, and the lines of an uninterrupted session."""
    models = load_models(wanted(project))
    return models, run(models, project[2], tmp_path_factory.mktemp("whole"))[2]


def wanted(project, cell="linear-pjepa", **changes):
    root, options, _ = project
    return replace(options, **{"cell": root / "results/probe" / cell, **changes})


def run(models, video, tmp_path, **options):
    options = {"jsonl": tmp_path / "out.jsonl", "quiet": True, **options}
    session = Session(models, str(video), Options(**options))
    return session, session.run(), lines(options["jsonl"])


def interrupted(models, video, hops, **options):
    """A session whose source stops after so many hops."""
    session = Session(models, str(video), Options(quiet=True, **options))
    stop_after(session, hops)
    return session.run()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(rows):
    return [(row["start"], row["end"], row["label"]) for row in rows]


def offline(models, video):
    return told([vars(step) for step in predicted(models, video).steps(CLASSES.names)])


@pytest.mark.parametrize("cell", CELLS)
def test_a_streamed_file_is_labelled_as_offline(project, tmp_path, cell):
    models = load_models(wanted(project, cell))
    _, summary, rows = run(models, project[2], tmp_path)
    steps = predicted(models, project[2]).steps(CLASSES.names)
    assert told(rows) == told([vars(step) for step in steps])
    scores = [row["score"] for row in rows]
    np.testing.assert_allclose(scores, [step.score for step in steps], atol=1e-3)
    assert [row.get("next") for row in rows] == [step.outlook.get("next") for step in steps]
    for name in FIELDS[1:]:
        streamed = [row.get(name, -1) for row in rows]
        np.testing.assert_allclose(
            streamed, [step.outlook.get(name, -1) for step in steps], atol=2e-4
        )
    if cell == "linear-pjepa":  # others tell one long step, or nothing of what comes
        assert max(row["surprise"] for row in rows) > 0
        assert len({row["progress"] for row in rows}) > 3
    assert (summary["status"], summary["dropped"]) == ("ended", 0)
    assert rows[0]["start"] == 0
    assert all(a["end"] == b["start"] for a, b in itertools.pairwise(rows))
    assert all(row["latency"] >= row["algorithmic_s"] >= 0 for row in rows)


@pytest.mark.parametrize("attention", ["block_causal", "token_causal"])
@pytest.mark.parametrize("segments", ["fixed", "found"])
@pytest.mark.parametrize("mode", ["aligned", "trailing"])
def test_other_stacks(tmp_path, attention, segments, mode):
    windows = {"window_mode": "trailing", "window_stride": 2} if mode == "trailing" else {}
    stack = {"attention": attention, "segments": segments, "patches": windows}
    models = load_models(make_project(tmp_path, **stack))
    video = make_video(tmp_path / "x.mp4", 9.0)
    _, _, rows = run(models, video, tmp_path)
    assert told(rows) == offline(models, video)
    assert models.notes == ()  # nothing differs from training


@pytest.mark.parametrize(("window", "per_step"), [(3, 1), (4, 2), (10, 1)])
def test_an_action_pooler_whose_windows_are_others_than_the_backbones(tmp_path, window, per_step):
    options = make_project(tmp_path)
    make_action_pooler(tmp_path, window, per_step)
    video = make_video(tmp_path / "x.mp4", 9.3)
    models = load_models(replace(options, as_trained=True))
    session, _, rows = run(models, video, tmp_path)
    assert told(rows) == offline(models, video)
    assert session.tokens.lookahead_s == {3: 1.0, 4: 1.0, 10: 3.0}[window]
    assert len(predicted(models, video).times_s) == 38 * per_step  # 9.3 s at 4 steps a second
    short = load_models(options)
    assert (short.pooled, short.patches.steps) == (min(window, 4), 4)


@pytest.mark.parametrize(("cell", "ahead"), [*((cell, False) for cell in CELLS), (CELLS[0], True)])
def test_a_camera_that_restarts_begins_a_new_recording(project, tmp_path, cell, ahead, capsys):
    models, twice = load_models(wanted(project, cell)), tmp_path / "twice.ts"
    offsets = {"output_ts_offset": "9000"} if ahead else {}
    first = make_video(tmp_path / "first.ts", 4.4, format="mpegts")
    later = make_video(tmp_path / "later.ts", 4.4, format="mpegts", options=offsets)
    twice.write_bytes(first.read_bytes() + later.read_bytes())
    found = predicted(models, twice)
    assert found.cuts == (18,)
    assert len(found.times_s) == 36  # 8.8 s at 4 tokens a second, not hours of one frame
    _, summary, rows = run(models, twice, tmp_path)
    assert told(rows) == offline(models, twice)
    assert summary["jumps"] == 1
    assert any(row["end"] == 4.5 for row in rows)  # no step reaches across
    with twice.open("rb") as file:
        session = Session(models, "-", Options(jsonl=tmp_path / "p.jsonl"), Pipe(file.fileno()))
        session.run()
    jump = "+8995.5" if ahead else "-4.4"
    note = f"\ntime stamps jump by {jump} s at 4.4 s: a new recording begins there"
    assert note in capsys.readouterr().err
    piped = lines(tmp_path / "p.jsonl")
    assert session.jumps == 1
    assert (piped[-1]["end"], 4.5 in [row["end"] for row in piped]) == (9.0, True)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("stop", [1, 7])
def test_a_session_that_was_stopped_goes_on(project, tmp_path, cell, stop):
    models = load_models(wanted(project, cell))
    _, _, whole = run(models, project[2], tmp_path)
    options = {"jsonl": tmp_path / "cut.jsonl", "state": tmp_path / "state"}
    assert interrupted(models, project[2], stop, **options)["status"] == "stopped"
    first = lines(options["jsonl"])
    assert first[-1]["end"] < whole[-1]["end"]
    assert told(first)[:-1] == told(whole)[: len(first) - 1]  # complete up to where it stopped
    _, summary, rows = run(models, project[2], tmp_path, **options)
    assert summary["status"] == "ended"
    assert told(rows) == told(whole)
    ahead, expected = ([[row.get(name) for name in FIELDS] for row in r] for r in (rows, whole))
    assert ahead == expected
    assert not (tmp_path / "state/state.safetensors").exists()  # nothing left to go on with


@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_state_is_put_aside_for_the_one_before(
    project, whole, tmp_path, monkeypatch, capsys, both
):
    monkeypatch.setattr("pjepa.live.session.SAVE_S", 0.0)
    monkeypatch.setattr("pjepa.live.session.SAVE_SHARE", math.inf)  # a state after every hop
    (models, expected), state = whole, tmp_path / "state"
    options = {"jsonl": tmp_path / "cut.jsonl", "state": state}
    interrupted(models, project[2], 7, **options)
    for name in ("state.safetensors", *(["state.safetensors.before"] if both else [])):
        flip(state / name, -1)
    if both:
        with pytest.raises(InputError, match="no good state is left; run again to start afresh"):
            Session(models, str(project[2]), Options(quiet=True, **options))
    _, _, rows = run(models, project[2], tmp_path, **options)
    assert told(rows) == told(expected)
    said = [line for line in capsys.readouterr().err.splitlines() if "is damaged" in line]
    assert len(said) == 1 + both


def test_lines_that_somebody_took_away_leave_no_hole(project, whole, tmp_path):
    options = {"jsonl": tmp_path / "out.jsonl", "state": tmp_path / "s"}
    interrupted(whole[0], project[2], 7, **options)
    first = lines(options["jsonl"])
    options["jsonl"].unlink()
    _, _, rest = run(whole[0], project[2], tmp_path, **options)
    assert len(first) > 1
    assert rest[0]["start"] <= first[-1]["end"]
    assert rest[-1]["end"] == 20.5


def test_a_state_of_something_else_is_refused(project, whole, tmp_path):
    models, _ = whole
    interrupted(models, project[2], 0, state=tmp_path / "state")
    with pytest.raises(InputError, match="another source, model or setting"):
        Session(models, "other.mp4", Options(quiet=True, state=tmp_path / "state"))
    cell = tmp_path / "linear-pjepa"  # fitted again: all is the same but for the weights
    shutil.copytree(project[1].cell, cell)
    tensors = read_tensors(cell / "model/model.safetensors")
    write_tensors(cell / "model/model.safetensors", {**tensors, "bias": tensors["bias"] + 1})
    again = load_models(wanted(project, cell=cell))
    with pytest.raises(InputError, match="another source, model or setting"):
        Session(again, str(project[2]), Options(quiet=True, state=tmp_path / "state"))


@pytest.mark.parametrize("live", [False, True])
def test_a_pipe_that_ends_is_labelled_as_its_file(whole, tmp_path, live):
    video, (models, _) = make_video(tmp_path / "x.ts", 9.3, format="mpegts"), whole
    with video.open("rb") as file:
        pipe, out = Pipe(file.fileno()), tmp_path / "out.jsonl"
        wait_for(lambda: pipe._ended)  # as if models had loaded meanwhile
        session = Session(models, "-", Options(live, quiet=True, jsonl=out), pipe)
        summary = session.run()
    assert told(lines(out)) == offline(models, video)
    assert (summary["status"], summary["dropped"]) == ("ended", 0)


def test_lines_on_standard_output_beside_a_look_at_the_present_that_changes_nothing(
    project, whole, capfd
):
    (models, expected), screen = whole, io.StringIO()
    session = Session(models, str(project[2]), Options(jsonl=Path("-")))
    session.view.console = Console(file=screen, force_terminal=True, width=100)
    session.run()
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told(rows) == told(expected)
    assert "score" in rows[0]
    assert "now  " in screen.getvalue()
    assert "real time" in screen.getvalue()


def test_a_run_shows_only_what_it_has(project, tmp_path):
    _, options, video = project
    models = load_models(options)
    predict_videos(models, {"x": video}, tmp_path / "out")
    with (tmp_path / "out/outlook/x.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    step = predicted(models, video).steps(CLASSES.names)[0]
    assert [row[name] for name in FIELDS] == [str(step.outlook[name]) for name in FIELDS]
    other = tmp_path / "questions"
    write_json(other / ABOUT, {"encoder": "of another run"})
    assert load_models(wanted(project, questions=other)).outlook.next is None
    assert load_models(wanted(project, "linear-raw")).outlook == Outlook()
    _, _, rows = run(load_models(wanted(project, questions=tmp_path / "none")), video, tmp_path)
    assert FIELDS[3] in rows[0]
    assert not rows[0].keys() & set(FIELDS[:3])
    shutil.copytree(options.model, tmp_path / "models", ignore=shutil.ignore_patterns(HEADS))
    _, _, rows = run(load_models(wanted(project, model=tmp_path / "models")), video, tmp_path)
    assert FIELDS[3] not in rows[0]
    assert rows[0].keys() >= set(FIELDS[:3])


def broken(cell):
    (cell / "model/model.safetensors").write_bytes(b"broken")


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("linear-segment_mean", None, "representation segment_mean"),
        ("linear-raw", None, "takes 32 channels, there are 64"),
        ("linear-pjepa", broken, r"linear-pjepa/model/model.safetensors: not .*dvc checkout"),
        (
            "linear-pjepa",
            lambda cell: write_classes(cell / "model/classes.json", Classes(("a", "b"), None)),
            "2 names, the probe has 4 classes",
        ),
    ],
)
def test_a_probe_that_does_not_fit_is_named(project, tmp_path, name, change, reason):
    cell = tmp_path / name
    shutil.copytree(project[0] / "results/probe/linear-pjepa", cell)
    if change is not None:
        change(cell)
    with pytest.raises(InputError, match=reason):
        load_models(wanted(project, cell=cell))


def test_models_that_cannot_be_used_are_named(project):
    with pytest.raises(InputError, match="device nosuch"):
        load_models(wanted(project, device="nosuch"))
    with pytest.raises(InputError, match=r"linear-pjepa,linear-raw.*dvc repro"):
        load_models(wanted(project, cell="nosuch-pjepa"))
    models = load_models(wanted(project, "ltcontext-pjepa"))
    with pytest.raises(InputError, match="whole take"):
        Session(models, str(project[2]), Options(quiet=True))


def test_an_encoder_of_annotated_segments_says_what_stands_in(project):
    found = load_models(wanted(project))
    assert found.rule.kind == "found"
    assert "trained on annotated segments" in found.notes[0]
    without = load_models(wanted(project, training=Path("nosuch.parquet")))
    assert (without.rule.kind, without.rule.block) == ("fixed", 6)
    with pytest.raises(InputError, match="nosuch"):
        load_models(wanted(project, training=Path("nosuch.parquet"), segments="found"))


def test_long_training_windows_become_short_ones_on_the_device_asked_for(tmp_path):
    options = make_project(tmp_path, patches={"frames_per_window": 64})
    short = load_models(options)
    assert (short.patches.steps, len(short.notes)) == (8, 2)
    for as_trained, steps in ((False, 8), (True, 32)):
        options = LiveOptions(device="cuda:1", reader="pyav", as_trained=as_trained)
        patches, _, _ = live_windows(short.pooler.facts.patches, 1, options)
        assert (patches.steps, patches.device, patches.reader) == (steps, "cuda:1", "pyav")


def test_the_view_shows_labels_and_outlook_as_text():
    ahead = {"next": "pour\nit", "next_score": 0.611, "progress": 0.4, "surprise": 0.123}
    shown = LiveNumbers(time_s=10.0, current="cut [red]<b>", score=0.5, outlook=ahead)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(LiveView().drawn(shown))
    text = console.export_text()
    assert "cut [red]<b>" in text
    assert "next pour it 0.61, 40% done, surprise 0.12" in text
    assert (outlook_line({"surprise": 0.5}), outlook_line({})) == ("surprise 0.50", "")
    assert clock(3723.5) == "1:02:03.50"
