"""Runs `checks_*.py` on the pretend device, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CHECKS = sorted(path.name for path in HERE.glob("checks_*.py"))


@pytest.mark.parametrize("checks", CHECKS)
def test_on_the_pretend_device(checks):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", HERE / checks]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=HERE.parents[1]
    )
    assert found.returncode == 0, found.stdout + found.stderr
