"""Time and memory of one training step of the temporal probes, against plain versions.

`python -m benchmarks.probes [--json FILE] [--rounds N]`. Each case names a step of our model and
the same step of a plain version written from the published description: LTContext with unfolded
key windows (`probes_ltcontext`), FACT with a dense matching (`probes_fact`). One thread. Time: CPU
seconds, ours and the reference alternately in one process, median. Memory: peak resident size
during one step, and during two, above the size before the first, each side in a process of its own;
the optimiser's moments are there from the end of the first on.
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
    """Return the cases of every module that is there; a module offers `cases() -> list[Case]`."""
    found = [importlib.import_module(name) for name in MODULES if find_spec(name)]
    return [case for module in found for case in module.cases()]


def cpu_seconds(step: Callable[[], object]) -> float:
    """Return CPU time of one call."""
    start = time.process_time()
    step()
    return time.process_time() - start


def time_row(case: Case, rounds: int) -> Row:
    """Return median CPU seconds of both sides, measured alternately after a warm-up step."""
    case.ours(), case.reference()
    pairs = [(cpu_seconds(case.ours), cpu_seconds(case.reference)) for _ in range(rounds)]
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    return row(ours, reference, "s")


def peaks_above_start(step: Callable[[], object]) -> tuple[float, float]:
    """Return the peak resident MB of one step, and of two, above the size before them."""
    forget_peak()
    before = resident("VmRSS")
    step()
    first = resident("VmHWM") - before
    step()
    return first, resident("VmHWM") - before


def memory_rows(name: str) -> tuple[Row, Row]:
    """Return the peak MB of both sides, each in a fresh process: of one step and of two."""
    command = [sys.executable, "-m", "benchmarks.probes", "--memory-of", name, "--side"]
    (ours, ours_two), (reference, reference_two) = (
        map(float, subprocess.run(
            [*command, side], check=True, capture_output=True, text=True
        ).stdout.split())
        for side in ("ours", "reference")
    )  # fmt: skip
    return row(ours, reference, "MB"), row(ours_two, reference_two, "MB")


def main(
    rounds: Annotated[int, typer.Option(help="Timed steps of each side.", min=1)] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
    memory_of: Annotated[str, typer.Option(hidden=True)] = "",
    side: Annotated[str, typer.Option(hidden=True)] = "ours",
) -> None:
    """Print one row per case for time and one for memory."""
    torch.set_num_threads(1)
    cases = {case.name: case for case in all_cases()}
    if memory_of:
        print(*peaks_above_start(getattr(cases[memory_of], side)))
        return
    table = Table()
    for name, case in cases.items():
        table.add(f"{name}, time", time_row(case, rounds))
        first, both = memory_rows(name)
        table.add(f"{name}, memory of the first step", first)
        table.add(f"{name}, memory", both)
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
