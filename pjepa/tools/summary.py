"""`pjepa summary`: the numbers of a run that fit a glance."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.tools.params import dotted
from pjepa.ui.console import InputError

# What a first look needs: the input, the two strongest controls, and the encoder's own.
SHOWN = {
    "raw": "the tokens that go in",
    "random": "the encoder, untrained",
    "history": "averages of past segments, nothing learned",
    "pjepa": "the trained encoder",
    "pjepa_segment": "the same, averaged over its segment",
}
METRICS = ("acc", "edit", "f1_50")


def summary_table(metrics: Mapping[str, Any], probe: str) -> tuple[str, list[str], list[list[str]]]:
    """Return title, header and rows of one probe; a probe that was not run is named."""
    probes = [name for name in metrics if name != "demo"]
    if probe not in probes:
        there = ", ".join(probes) or "none; run `dvc repro`"
        raise InputError(f"--probe {probe}: not in results/metrics.json; there: {there}")
    rows = [
        [f"{name}: {what}", *(f"{metrics[probe][name].get(m, float('nan')):.1f}" for m in METRICS)]
        for name, what in SHOWN.items()
        if name in metrics[probe]
    ]
    return f"{probe} probe, percent", ["features", *METRICS], rows


# `pjepa verify`: are the numbers of this run those that were committed?

AMPLIFIED = 3.0
TRAINED = ("pjepa", "forecast", "gap_closed")  # in names of numbers that the encoder made


@dataclass(frozen=True)
class Change:
    """One number, committed and now; None where it is absent."""

    name: str
    committed: float | None
    present: float | None
    tolerance: float

    @property
    def within(self) -> bool:
        """Return whether both exist and differ by no more than the tolerance."""
        if self.committed is None or self.present is None:
            return False
        return abs(self.present - self.committed) <= self.tolerance + 1e-9

    def row(self) -> list[str]:
        """Return the cells of a table: name, committed, now, difference, verdict."""
        values = (self.committed, self.present)
        numbers = ["missing" if value is None else f"{value:.2f}" for value in values]
        moved = "" if None in values else f"{self.present - self.committed:+.2f}"  # type: ignore[operator]
        return [self.name, *numbers, moved, "ok" if self.within else "differs"]


def metric_changes(
    committed: Mapping[str, Any], present: Mapping[str, Any], tolerance: float
) -> list[Change]:
    """Return every number of either file, in the order of the current one."""
    old, new = dotted(committed), dotted(present)
    changes = []
    for name in {**new, **old}:
        trained = any(word in name for word in TRAINED)
        allowed = tolerance * AMPLIFIED if trained else tolerance
        changes.append(Change(name, old.get(name), new.get(name), allowed))
    return changes


def committed_metrics(path: Path) -> dict[str, Any]:
    """Return the metrics file of the last commit; the project may be a folder of its repository."""
    command = ["git", "show", f"HEAD:./{path.as_posix()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError("git is not installed; verify compares with the last commit") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise InputError(f"{path}: no committed version to compare with ({reason})")
    try:
        return dict(json.loads(done.stdout))
    except json.JSONDecodeError as error:
        raise InputError(f"HEAD:{path}: not JSON ({error})") from None
