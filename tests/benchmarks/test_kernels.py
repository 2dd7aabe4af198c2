"""The kernels of one case are compiled for a GPU that is only described, and fit."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CASE = "A100 (sm80), 163 KB, bf16, heads of 64: fits; as it is, fits"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_shared_memory_of_a_kernel(tmp_path: Path) -> None:
    """In a process of its own, because the GPU is described to all of torch."""
    command = [sys.executable, "-m", "benchmarks.kernels", "--width", "64", "--sm", "80"]
    found = subprocess.run(
        [*command, "--precision", "bf16", "--json", tmp_path / "found.json"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"},  # no pool for two kernels
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    table = json.loads((tmp_path / "found.json").read_text())
    assert list(table) == [CASE]
    assert table[CASE]["ratio"] == 1  # 64 channels are not filled up
    assert 0 < table[CASE]["ours"] <= 163
