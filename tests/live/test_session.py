"""The whole stack: frames to labels, equal to offline, whatever happens on the way."""

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file

from pjepa.errors import InputError
from pjepa.live.models import load_models
from pjepa.live.pipe import Pipe
from pjepa.live.predict import predicted
from pjepa.live.session import Options, Session
from pjepa.live.view import Shown, View, clock
from pjepa.takes.manifest import Classes, write_classes
from pjepa.video.reader import open_video
from pjepa.video.sampling import token_count
from tests.live.world import CLASSES, make_action_pooler, make_project, make_video, wait_for

ROOT = Path(__file__).resolve().parents[2]
CELLS = ("linear-pjepa", "attentive-pjepa", "ltcausal-pjepa", "linear-raw", "ltcausal-raw")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    return root, make_project(root), make_video(root / "v/x.mp4", 20.3)


def wanted(project, cell="linear-pjepa", **changes):
    root, found, _ = project
    return type(found)(**{**vars(found), "cell": root / "results/probe" / cell, **changes})


def run(models, video, tmp_path, **options):
    options = {"jsonl": tmp_path / "out.jsonl", "quiet": True, **options}
    session = Session(models, str(video), Options(**options))
    return session, session.run(), lines(options["jsonl"])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(rows):
    return [(row["start"], row["end"], row["label"]) for row in rows]


@pytest.mark.parametrize("cell", CELLS)
def test_a_streamed_file_is_labelled_as_offline(project, tmp_path, cell):
    models = load_models(wanted(project, cell))
    _, summary, rows = run(models, project[2], tmp_path)
    offline = predicted(models, project[2]).labelled(CLASSES).steps
    assert told(rows) == [(step.start, step.end, step.label) for step in offline]
    np.testing.assert_allclose(
        [row["score"] for row in rows], [step.score for step in offline], atol=1e-3
    )
    assert (summary["status"], summary["dropped"]) == ("ended", 0)
    assert rows[0]["start"] == 0
    assert all(a["end"] == b["start"] for a, b in itertools.pairwise(rows))
    assert all(row["latency"] >= row["algorithmic_s"] >= 0 for row in rows)


@pytest.mark.parametrize("attention", ["block_causal", "token_causal"])
@pytest.mark.parametrize("segments", ["fixed", "found"])
def test_other_encoders(tmp_path, attention, segments):
    found = make_project(tmp_path, attention=attention, segments=segments)
    video = make_video(tmp_path / "x.mp4", 9.0)
    models = load_models(found)
    assert models.notes == ()  # nothing differs from training
    _, _, rows = run(models, video, tmp_path)
    offline = predicted(models, video).labelled(CLASSES).steps
    assert told(rows) == [(step.start, step.end, step.label) for step in offline]


def test_trailing_windows_equal_the_extraction_of_the_pipeline(tmp_path):
    trailing = {"window_mode": "trailing", "window_stride": 2}
    found = make_project(tmp_path, patches=trailing)
    video = make_video(tmp_path / "x.mp4", 7.1)
    models = load_models(found)
    _, _, rows = run(models, video, tmp_path)
    offline = predicted(models, video).labelled(CLASSES).steps
    assert told(rows) == [(step.start, step.end, step.label) for step in offline]
    assert models.patches.window_stride == 2


@pytest.mark.parametrize(("window", "per_step"), [(3, 1), (4, 2), (10, 1)])
def test_an_action_pooler_whose_windows_are_others_than_the_backbones(tmp_path, window, per_step):
    found = make_project(tmp_path)
    make_action_pooler(tmp_path, window, per_step)
    video = make_video(tmp_path / "x.mp4", 9.3)
    models = load_models(type(found)(**{**vars(found), "as_trained": True}))
    session, _, rows = run(models, video, tmp_path)
    offline = predicted(models, video)
    assert told(rows) == [(s.start, s.end, s.label) for s in offline.labelled(CLASSES).steps]
    assert session.tokens.lookahead_s == {3: 1.0, 4: 1.0, 10: 3.0}[window]
    with open_video(video) as reader:
        steps = token_count(reader.info.duration_s, 4.0)
    assert len(offline.times_s) == steps * per_step
    short = load_models(found)
    assert (short.pooled, short.patches.steps) == (min(window, 4), 4)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("stop", [1, 7])
def test_a_session_that_was_stopped_goes_on(project, tmp_path, cell, stop):
    models = load_models(wanted(project, cell))
    _, _, whole = run(models, project[2], tmp_path)
    options = {"jsonl": tmp_path / "cut.jsonl", "state": tmp_path / "state"}
    session = Session(models, str(project[2]), Options(quiet=True, **options))
    usual, count = session.tokens.push, iter(range(100))

    def push(hop):
        if next(count) == stop:
            session.source.stop()
        return usual(hop)

    session.tokens.push = push
    assert session.run()["status"] == "stopped"
    first = lines(options["jsonl"])
    assert first[-1]["end"] < whole[-1]["end"]
    assert told(first)[:-1] == told(whole)[: len(first) - 1]  # complete up to where it stopped
    _, summary, rows = run(models, project[2], tmp_path, **options)
    assert summary["status"] == "ended"
    assert told(rows) == told(whole)
    assert not (tmp_path / "state/state.safetensors").exists()  # nothing left to go on with


def test_lines_that_somebody_took_away_leave_no_hole(project, tmp_path):
    models, out = load_models(wanted(project)), tmp_path / "out.jsonl"
    session = Session(models, str(project[2]), Options(False, None, 30, out, tmp_path / "s", True))
    usual, count = session.tokens.push, itertools.count()

    def push(hop):
        if next(count) == 7:
            session.source.stop()
        return usual(hop)

    session.tokens.push = push
    session.run()
    first = lines(out)
    out.unlink()
    _, _, rest = run(models, project[2], tmp_path, jsonl=out, state=tmp_path / "s")
    assert len(first) > 1
    assert rest[0]["start"] <= first[-1]["end"]
    assert rest[-1]["end"] == 20.5


def test_a_state_of_something_else_is_refused(project, tmp_path):
    models = load_models(wanted(project))
    session = Session(models, str(project[2]), Options(quiet=True, state=tmp_path / "state"))
    session.source.stop()
    session.run()
    with pytest.raises(InputError, match="another source, model or setting"):
        Session(models, "other.mp4", Options(quiet=True, state=tmp_path / "state"))
    cell = tmp_path / "linear-pjepa"  # fitted again: all is the same but for the weights
    shutil.copytree(project[1].cell, cell)
    tensors = load_file(cell / "model/model.safetensors")
    save_file({**tensors, "bias": tensors["bias"] + 1}, cell / "model/model.safetensors")
    again = load_models(wanted(project, cell=cell))
    with pytest.raises(InputError, match="another source, model or setting"):
        Session(again, str(project[2]), Options(quiet=True, state=tmp_path / "state"))


# Does what the tool does, and leaves a mark after as many hops of a second as MARK_AFTER says.
MARKED = """
import os, pathlib, sys, time
import pjepa.live.session as session, pjepa.live.tokens as tokens
from pjepa.cli import app
session.SAVE_S, usual, hops = 0, tokens.TokenStream.push, []
def push(*arguments):
    hops.append(1)
    if len(hops) > int(os.environ["MARK_AFTER"]):
        pathlib.Path("mark").touch()
        time.sleep(600)  # until it is killed
    found = usual(*arguments)
    if "MARK_AT" in os.environ and len(hops) == int(os.environ["MARK_AT"]):
        pathlib.Path("modules").write_text(" ".join(sys.modules))
        pathlib.Path("mark").touch()
    return found
tokens.TokenStream.push = push
app()
"""


def start(project, folder, *arguments, code=MARKED, **environment):
    _, found, _ = project
    options = ["--model", found.model, "--probe", found.cell, "--training", found.training]
    return subprocess.Popen(
        [sys.executable, "-c", code, "stream", *map(str, (*arguments, *options))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_mark(process, folder):
    def there():
        assert process.poll() is None, process.stderr.read().decode()
        return (folder / "mark").exists()

    wait_for(there)


def test_killed_and_restored_gives_the_same_labels(project, tmp_path):
    """SIGKILL: no handler runs, only what is on disk survives."""
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    options = {"jsonl": out, "state": state}
    process = start(project, tmp_path, project[2], "--jsonl", out, "--state", state, MARK_AFTER="9")
    wait_for_mark(process, tmp_path)
    process.kill()
    process.communicate()
    models = load_models(wanted(project))
    with out.open("ab") as file:
        file.write(b'{"start": half a line that came after the state')
    session, _, rows = run(models, project[2], tmp_path, **options)
    assert session.source.frames < 20 * 8  # it did not begin again
    _, _, whole = run(models, project[2], tmp_path / "whole")
    assert told(rows) == told(whole)


def test_ctrl_c_on_a_pipe_ends_with_a_complete_file(project, tmp_path):
    video = make_video(tmp_path / "x.ts", 6.0, format="mpegts")
    out, summary = tmp_path / "out.jsonl", tmp_path / "s.json"
    process = start(
        project, tmp_path, "-", "--jsonl", out, "--summary", summary, MARK_AFTER="9", MARK_AT="5"
    )
    process.stdin.write(video.read_bytes())
    process.stdin.flush()  # and then nothing: the camera is on, the pipe is open
    wait_for_mark(process, tmp_path)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said.decode()
    rows = lines(out)
    assert json.loads(summary.read_text())["status"] == "stopped"
    assert len(printed.decode().splitlines()) == len(rows)  # plain lines, no view
    assert b"\x1b[" not in printed + said
    assert (rows[0]["start"], rows[-1]["end"]) == (0.0, 5.0)
    assert said.startswith(b"loading models\n")  # something to see at once
    assert "stopped; " in said.decode()
    loaded = set((tmp_path / "modules").read_text().split())
    assert not loaded & {"torch._dynamo", "timm", "scipy", "sympy"}  # seconds before a stream


def test_a_service_that_is_stopped_completes_its_output(project, tmp_path):
    models, before = load_models(wanted(project)), signal.getsignal(signal.SIGTERM)
    session = Session(models, str(project[2]), Options(quiet=True, jsonl=tmp_path / "x.jsonl"))
    usual, count = session.tokens.push, itertools.count()

    def push(hop):
        if next(count) == 3:
            signal.raise_signal(signal.SIGTERM)
        return usual(hop)

    session.tokens.push = push
    assert session.run()["status"] == "stopped"
    assert lines(tmp_path / "x.jsonl")[-1]["end"] == 4.0
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_stalled_pipe_is_said_and_complete(project, tmp_path):
    video = make_video(tmp_path / "x.ts", 4.0, format="mpegts")
    process = start(
        project, tmp_path, "-", "--stall", "600", "--jsonl", "out.jsonl", MARK_AFTER="9",
        code=MARKED.replace("app()", IMPATIENT),
    )  # fmt: skip
    process.stdin.write(video.read_bytes())
    process.stdin.flush()
    said = process.stderr.read().decode()
    assert process.wait(timeout=120) == 1
    assert "stalled: no frame for 0.2 s" in said
    assert lines(tmp_path / "out.jsonl")[-1]["end"] >= 2.0


# Once two hops came, the source may not pause for longer than a blink.
IMPATIENT = """
import pjepa.live.source as source
hops_of = source.Source.hops
def impatient(self):
    for number, hop in enumerate(hops_of(self)):
        yield hop
        self.stall_s = 0.2 if number == 1 else self.stall_s
source.Source.hops = impatient
app()
"""


@pytest.mark.parametrize("live", [False, True])
def test_a_pipe_that_ends_is_labelled_as_its_file(project, tmp_path, live):
    video = make_video(tmp_path / "x.ts", 9.3, format="mpegts")
    models = load_models(wanted(project))
    with video.open("rb") as file:
        pipe, out = Pipe(file.fileno()), tmp_path / "out.jsonl"
        wait_for(lambda: pipe._ended)  # as if models had loaded meanwhile
        session = Session(models, "-", Options(live, quiet=True, jsonl=out), pipe)
        summary = session.run()
    offline = predicted(models, video).labelled(CLASSES).steps
    assert told(lines(out)) == [(step.start, step.end, step.label) for step in offline]
    assert (summary["status"], summary["dropped"]) == ("ended", 0)


def test_json_lines_on_standard_output(project, capfd):
    models = load_models(wanted(project))
    Session(models, str(project[2]), Options(jsonl=Path("-"))).run()
    printed = capfd.readouterr().out.splitlines()
    assert {"start", "end", "label", "score"} < set(json.loads(printed[0]))
    assert json.loads(printed[-1])["end"] == 20.5


def test_a_look_at_the_present_changes_nothing(project, tmp_path):
    models = load_models(wanted(project))
    _, _, expected = run(models, project[2], tmp_path)
    out, screen = tmp_path / "seen.jsonl", io.StringIO()
    session = Session(models, str(project[2]), Options(jsonl=out))
    session.view.console = Console(file=screen, force_terminal=True, width=100)
    session.run()
    assert told(lines(out)) == told(expected)
    assert "now  " in screen.getvalue()
    assert "real time" in screen.getvalue()


def test_models_that_do_not_fit_are_named(project, tmp_path):
    cell = project[0] / "results/probe/linear-pjepa"
    for name, reason in (
        ("linear-segment_mean", "representation segment_mean"),
        ("linear-raw", "takes 32 channels, there are 64"),
    ):
        shutil.copytree(cell, tmp_path / name)
        with pytest.raises(InputError, match=reason):
            load_models(wanted(project, cell=tmp_path / name))
    shutil.copytree(cell, tmp_path / "broken/linear-pjepa")
    weights = tmp_path / "broken/linear-pjepa/model/model.safetensors"
    weights.write_bytes(b"broken")
    with pytest.raises(InputError, match=r"broken/linear-pjepa: weights that cannot be read"):
        load_models(wanted(project, cell=weights.parents[1]))
    shutil.copytree(cell, tmp_path / "few/linear-pjepa")
    write_classes(tmp_path / "few/linear-pjepa/model/classes.json", Classes(("a", "b"), None))
    with pytest.raises(InputError, match="2 names, the probe tells 4 classes apart"):
        load_models(wanted(project, cell=tmp_path / "few/linear-pjepa"))
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


def test_long_training_windows_become_short_ones(tmp_path):
    found = make_project(tmp_path, patches={"frames_per_window": 64})
    short = load_models(found)
    assert (short.patches.steps, len(short.notes)) == (8, 2)
    trained = load_models(type(found)(**{**vars(found), "as_trained": True}))
    assert trained.patches.steps == 32


def test_the_view_shows_labels_as_text():
    view, shown = View(), Shown(time_s=10.0, current="cut [red]<b>", score=0.5)
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(view.drawn(shown))
    assert "cut [red]<b>" in console.export_text()
    assert clock(3723.5) == "1:02:03.50"
