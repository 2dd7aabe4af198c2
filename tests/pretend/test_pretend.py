"""Runs `checks_*.py` on the pretend device, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_on_the_pretend_device():
    plugins = ("-p", "tests.pretend.device", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-x", "-q", *plugins, *HERE.glob("checks_*.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert ran.returncode == 0, ran.stdout + ran.stderr
