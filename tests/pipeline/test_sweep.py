"""A crash at every file operation of every stage; the suite takes a sample, `-m sweep` all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.in_process import STAGES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def swept(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What the sweep found, one entry per stage."""
    command = [sys.executable, "-m", "tests.pipeline.sweep", str(folder), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.sweep
@pytest.mark.timeout(7200)
def test_a_crash_at_every_operation_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = swept(tmp_path)
    with capsys.disabled():
        print(f"\n{sum(stage['crashes'] for stage in found)} crashes injected")
    assert [stage["stage"] for stage in found] == list(STAGES)
    assert {stage["stage"]: stage["faults"] for stage in found if stage["faults"]} == {}
    assert all(stage["crashes"] == stage["operations"] for stage in found)


def test_a_sample_of_crashes_changes_nothing(tmp_path: Path) -> None:
    found = swept(tmp_path, "--every", "25", "--stages", "tokens", "pretrain")
    assert {stage["stage"]: stage["faults"] for stage in found if stage["faults"]} == {}
    assert sum(stage["crashes"] for stage in found) >= 2
