"""The tool as a process of its own: killed, interrupted, or on a pipe that stalls."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from pjepa.live.models import load_models
from tests.live.test_session import lines, run, told, wanted
from tests.live.world import make_video, wait_for

ROOT = Path(__file__).resolve().parents[2]

# Does what the tool does, and leaves a mark after as many hops of a second as MARK_AFTER says.
MARKED = """
import math, os, pathlib, sys
import pjepa.live.session as session, pjepa.live.tokens as tokens
from pjepa.tools.cli import app
session.SAVE_S, session.SAVE_SHARE = 0, math.inf  # a state after every hop
usual, hops = tokens.TokenStream.push, []
def push(*arguments):
    hops.append(1)
    if len(hops) > int(os.environ["MARK_AFTER"]):
        pathlib.Path("mark").touch()
        sys.stdin.buffer.read()  # until it is killed
    found = usual(*arguments)
    if "MARK_AT" in os.environ and len(hops) == int(os.environ["MARK_AT"]):
        pathlib.Path("modules").write_text(" ".join(sys.modules))
        pathlib.Path("mark").touch()
    return found
tokens.TokenStream.push = push
app()
"""


@contextmanager
def start(project, folder, *arguments, code=MARKED, **environment):
    """The tool as a process, which ends with the test."""
    _, found, _ = project
    options = ["--model", found.model, "--probe", found.cell, "--training", found.training]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "stream", *map(str, (*arguments, *options))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_mark(process, folder):
    def there():
        assert process.poll() is None, process.stderr.read().decode()
        return (folder / "mark").exists()

    wait_for(there)


@pytest.mark.slow
def test_killed_and_restored_gives_the_same_labels(project, tmp_path):
    """SIGKILL: no handler runs, only what is on disk survives."""
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    options = {"jsonl": out, "state": state}
    arguments = (project[2], "--jsonl", out, "--state", state)
    with start(project, tmp_path, *arguments, MARK_AFTER="9") as process:
        wait_for_mark(process, tmp_path)
    models = load_models(wanted(project, questions=tmp_path / "none"))  # as the process
    with out.open("ab") as file:
        file.write(b'{"start": half a line that came after the state')
    session, _, rows = run(models, project[2], tmp_path, **options)
    assert session.source.frames < 20 * 8  # it did not begin again
    _, _, whole = run(models, project[2], tmp_path / "whole")
    assert told(rows) == told(whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])  # Ctrl-C; a service's end
def test_a_signal_on_a_pipe_ends_with_a_complete_file(project, tmp_path, number):
    video = make_video(tmp_path / "x.ts", 6.0, format="mpegts")
    out, summary = tmp_path / "out.jsonl", tmp_path / "s.json"
    patient = ("--every-frame", "--stall", "86400")  # no frame is dropped, no pause is too long
    arguments = ("-", *patient, "--jsonl", out, "--summary", summary)
    with start(project, tmp_path, *arguments, MARK_AFTER="9", MARK_AT="5") as process:
        process.stdin.write(video.read_bytes())
        process.stdin.flush()  # and then nothing: the camera is on, the pipe is open
        wait_for_mark(process, tmp_path)
        process.send_signal(number)
        process.wait()
        printed, said = process.stdout.read(), process.stderr.read()
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


@pytest.mark.slow
def test_a_stalled_pipe_is_said_and_complete(project, tmp_path):
    video = make_video(tmp_path / "x.ts", 4.0, format="mpegts")
    arguments = ("-", "--stall", "86400", "--jsonl", "out.jsonl")
    code = MARKED.replace("app()", IMPATIENT)
    with start(project, tmp_path, *arguments, code=code, MARK_AFTER="9") as process:
        process.stdin.write(video.read_bytes())
        process.stdin.flush()
        said = process.stderr.read().decode()
        assert process.wait() == 1
    assert "stalled: no frame for 0.2 s" in said
    assert lines(tmp_path / "out.jsonl")[-1]["end"] >= 2.0


# Once two hops came, the source may not pause for longer than a blink.
IMPATIENT = """
import pjepa.live.source as source
hops_of = source.LiveSource.hops
def impatient(self):
    for number, hop in enumerate(hops_of(self)):
        yield hop
        self.stall_s = 0.2 if number == 1 else self.stall_s
source.LiveSource.hops = impatient
app()
"""
