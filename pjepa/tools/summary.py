"""`pjepa summary`: the numbers of a run that fit a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjepa.ui.errors import InputError

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
    found = metrics[probe]
    rows = [
        [f"{name}: {what}", *(f"{found[name].get(metric, float('nan')):.1f}" for metric in METRICS)]
        for name, what in SHOWN.items()
        if name in found
    ]
    return f"{probe} probe, percent", ["features", *METRICS], rows
