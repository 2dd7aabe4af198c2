"""Killing a stage while it works, and running it again, as DVC would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The stage itself; at the n-th step after which a state may be saved, it is saved and all ends.
DYING = """
import os, runpy, signal, sys
from pjepa.storage.saver import Saver
usual, left = Saver.save_when_due, int(sys.argv.pop())
def save_and_die(saver, now=False):
    global left
    left -= 1
    usual(saver, now or left == 0)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Saver.save_when_due = save_and_die
runpy.run_module(sys.argv.pop(), run_name="__main__")
"""


def started(stage: str, dies_after: int | None = None) -> subprocess.Popen[bytes]:
    """The stage as a process of its own, in the working folder; it may die after some steps."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DVC_ROOT": "."}
    command = ["-m", f"stages.{stage}"]
    if dies_after is not None:
        command = ["-c", DYING, f"stages.{stage}", str(dies_after)]
    return subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes], code: int = 0) -> None:
    """Waits for the process, which ends with this code."""
    _, errors = process.communicate()
    assert process.returncode == code, errors.decode()


def run_killed(stage: str, deaths: tuple[int, ...], clear: Callable[[], None]) -> None:
    """Runs the stage to its end, killed after so many steps of each run before.

    Steps are counted, not seconds, so the kills fall on the same places on any machine. DVC
    removes outs before it runs a stage again: `clear`.
    """
    for steps in deaths:
        ended(started(stage, steps), -signal.SIGKILL)
        clear()
    ended(started(stage))
