"""Time and memory of one training step of the temporal probes, against plain versions.

`python -m benchmarks.probes [--json FILE] [--rounds N]`. Each case names a step of our model and
the same step of a plain version written from the published description: LTContext with unfolded
key windows (`probes_ltcontext`), FACT with a dense matching (`probes_fact`). One thread. Time: CPU
seconds, ours and the reference alternately in one process, median. Memory: peak resident size
during two steps above the size before the first, each side in a process of its own.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer

from benchmarks.workers import Row, Table, forget_peak, resident, row

MODULES = ("benchmarks.probes_ltcontext", "benchmarks.probes_fact")


@dataclass(frozen=True)
class Case:
    """Two callables that each run one whole training step; models and data are made before."""

    name: str
    ours: Callable[[], object]
    reference: Callable[[], object]


def all_cases() -> list[Case]:
    """The cases of every module that is there; a module offers `cases() -> list[Case]`."""
    found = [importlib.import_module(name) for name in MODULES if find_spec(name)]
    return [case for module in found for case in module.cases()]


def cpu_seconds(step: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    step()
    return time.process_time() - start


def time_row(case: Case, rounds: int) -> Row:
    """Median CPU seconds of both sides, measured alternately after one step of warm-up each."""
    case.ours(), case.reference()
    pairs = [(cpu_seconds(case.ours), cpu_seconds(case.reference)) for _ in range(rounds)]
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    return row(ours, reference, "s")


def peak_above_start(step: Callable[[], object]) -> float:
    """Peak resident MB of two steps above the size before them."""
    forget_peak()
    before = resident("VmRSS")
    step(), step()
    return resident("VmHWM") - before


def memory_row(name: str) -> Row:
    """Peak MB of both sides, each in a fresh process."""
    ours, reference = (
        float(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.probes", "--memory-of", name, "--side", side],
                check=True, capture_output=True, text=True,
            ).stdout
        )
        for side in ("ours", "reference")
    )  # fmt: skip
    return row(ours, reference, "MB")


def main(
    rounds: Annotated[int, typer.Option(help="Timed steps of each side.", min=1)] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
    memory_of: Annotated[str, typer.Option(hidden=True)] = "",
    side: Annotated[str, typer.Option(hidden=True)] = "ours",
) -> None:
    """Prints one row per case for time and one for memory."""
    torch.set_num_threads(1)
    cases = {case.name: case for case in all_cases()}
    if memory_of:
        print(peak_above_start(getattr(cases[memory_of], side)))
        return
    table = Table()
    for name, case in cases.items():
        table.add(f"{name}, time", time_row(case, rounds))
        table.add(f"{name}, memory", memory_row(name))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
