"""What a representation remembers: `python -m benchmarks.memory [--json FILE]`.

Reads the true primitive of the current segment and of the ones before it from a token, with the
converged linear probe, on the demo's test split. The reference is `raw`, which sees one window
only. It says where a gain comes from, or why there is none: the steps of the demo can be told apart
only by what came before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.workers import Row, row, save_rows
from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import read_section
from pjepa.core.tables import read_takes
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.scoring import Labels
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import primitive_targets, probe_accuracy
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths

REPRESENTATIONS = ("raw", "random", "pjepa", "history")
LAGS = (0, 1, 2)


def lagged(stream: StreamReader, targets: Labels, lag: int) -> Labels:
    """Return the primitive of the segment `lag` places before each token's own, -1 if none."""
    found = {}
    for take in stream.takes:
        segment = attention_segments(stream.read_layout(take).segment)
        shown = np.concatenate([np.full(lag, -1), targets[take][runs(segment)[0]]])
        found[take] = shown[segment].astype(np.int32)
    return found


def accuracy(name: str, lag: int) -> float:
    """Return the percent of tokens whose lagged primitive a probe on the representation reads."""
    stream = StreamReader(paths.representation_streams(paths.representation(name))[0])
    targets = lagged(stream, primitive_targets(stream, paths.DEMO_TRUTH), lag)
    return probe_accuracy(
        lambda take: stream.read(take).features,
        targets,
        read_takes(paths.TAKES_TABLE),
        read_section(ProbeCommonConfig, "probe.common"),
        read_section(LinearConfig, "probe.linear"),
    )


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one row per representation."""
    cases: dict[str, Row] = {}
    print(f"{'representation':16}" + "".join(f"{f'lag {lag}':>8}" for lag in LAGS))
    for name in REPRESENTATIONS:
        values = [accuracy(name, lag) for lag in LAGS]
        print(f"{name:16}" + "".join(f"{value:8.1f}" for value in values), flush=True)
        for lag, value in zip(LAGS, values, strict=True):
            reference = cases.get(f"raw, lag {lag}", {"ours": value})["ours"]
            cases[f"{name}, lag {lag}"] = row(value, float(reference), "%")
    save_rows(cases, json_file)


if __name__ == "__main__":
    typer.run(main)
