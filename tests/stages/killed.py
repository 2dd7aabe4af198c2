"""Killing a stage while it works, and running it again, as DVC would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(".dvc/tmp/pjepa")
KILLS = 3


def started(stage: str) -> subprocess.Popen[bytes]:
    """The stage as a process of its own, in the working folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DVC_ROOT": "."}
    command = [sys.executable, "-m", f"stages.{stage}"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def run_through(stage: str) -> None:
    """Runs the stage to its end."""
    process = started(stage)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()


def run_killed(stage: str, states: str, clear: Callable[[], None]) -> int:
    """Runs the stage to its end, killed up to three times after it saved a state; how often.

    `states` is a pattern of state files. DVC removes outs before it runs a stage again: `clear`.
    """
    kills = 0
    while True:
        process, known = started(stage), _written(states)
        while process.poll() is None:
            now = _written(states)
            if now and now != known and kills < KILLS:
                process.send_signal(signal.SIGKILL)
                kills += 1
                clear()
                break
            time.sleep(0.05)
        process.wait()
        if process.returncode == 0:
            return kills
        assert process.returncode == -signal.SIGKILL


def _written(states: str) -> dict[Path, int]:
    found = {}
    for path in WORK.rglob(states):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # replaced or removed just now
            continue
    return found
