"""Cases measured alternately, each in a process of its own, so that memory is its own too.

Times are CPU seconds of that process at one thread: other work on the machine counts less.
"""

from __future__ import annotations

import gc
import json
import multiprocessing as mp
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

Work = Callable[[], Any]
Row = dict[str, float | str]
CASE_WIDTH = 66


def resident(field: str) -> float:
    """Return MB of VmRSS (now) or VmHWM (the peak since `forget_peak`) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status; memory is measured on Linux only")


def forget_peak() -> None:
    """Start VmHWM anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _serve(connection: Connection, build: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    work = build(*arguments)
    while connection.recv():
        gc.collect()
        before = resident("VmRSS")
        forget_peak()
        started = time.process_time()
        result = work()
        seconds = time.process_time() - started
        connection.send((seconds, resident("VmHWM") - before, result))
    connection.close()


class Worker:
    """One case in its own process: `build(*arguments)` there returns the work to measure."""

    def __init__(self, build: Callable[..., Work], *arguments: Any) -> None:
        context = mp.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, build, arguments), daemon=True)
        self.process.start()

    def measure(self) -> tuple[float, float, Any]:
        """Return (CPU seconds, peak MB above the size just before, what the work returned)."""
        self.connection.send(True)
        return self.connection.recv()

    def stop(self) -> None:
        self.connection.send(False)
        self.process.join()


def alternately(workers: Mapping[str, Worker], rounds: int) -> dict[str, dict[str, Any]]:
    """Return per case the median CPU seconds, the first round's peak MB, and the last result.

    The first round warms up: its time is left out where others follow, its memory counts (later
    ones reuse pages).
    """
    found: dict[str, list[tuple[float, float, Any]]] = {name: [] for name in workers}
    for _ in range(rounds + 1):
        for name, worker in workers.items():
            found[name].append(worker.measure())
    for worker in workers.values():
        worker.stop()
    return {
        name: {"s": median(r[0] for r in rows[-rounds:]), "MB": rows[0][1], "result": rows[-1][2]}
        for name, rows in found.items()
    }


def row(ours: float, reference: float, unit: str) -> Row:
    """Return one line of a benchmark's table."""
    ratio = ours / reference if reference else float("inf")
    return {"ours": ours, "reference": reference, "ratio": ratio, "unit": unit}


class Table:
    """Rows printed as they are measured; `save` writes them as JSON."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        print(f"{'case':{CASE_WIDTH}} {'ours':>13} {'reference':>13} {'ratio':>6}")

    def add(self, case: str, found: Row) -> None:
        """Print one row."""
        self.rows[case] = found
        ours, reference = (f"{found[k]:.4g} {found['unit']}" for k in ("ours", "reference"))
        print(f"{case:{CASE_WIDTH}} {ours:>13} {reference:>13} {found['ratio']:6.2f}", flush=True)

    def save(self, file: Path | None) -> None:
        """Write the rows."""
        save_rows(self.rows, file)


def save_rows(rows: Mapping[str, Row], file: Path | None) -> None:
    """Write {case: {ours, reference, ratio, unit}}, if a file is asked for."""
    if file:
        file.write_text(json.dumps(rows, indent=2) + "\n")
