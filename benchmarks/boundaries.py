"""Boundaries found without labels: `python -m benchmarks.boundaries [--json FILE]`.

Percent F1 of boundaries within 0.5 s and 1 s of annotated ones on val and test takes. All rows have
the mean segment length of the annotated training takes; annotations decide nothing else. The
reference is random boundaries of the same rate. Segments of the demo last 2.8 s, so even fixed
blocks do well within 1 s; 0.5 s is more informative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.workers import Table, row
from pjepa.core.runs import attention_segments, runs
from pjepa.core.tables import pretraining_takes, read_takes
from pjepa.model.segments import (
    FoundConfig,
    FoundParameters,
    SegmentRule,
    fit_threshold,
    take_segments,
)
from pjepa.streams.stream import StreamReader, Take
from pjepa.tools import paths

TOLERANCES = (0.5, 1.0)  # seconds
DRAWS = 20  # of random boundaries
SegmentsOf = Callable[[Take], np.ndarray]


def hits(found: np.ndarray, true: np.ndarray, tolerance: float) -> int:
    """Return the size of the largest one-to-one matching within the tolerance (earliest first)."""
    matched, i, j = 0, 0, 0
    while i < len(found) and j < len(true):
        late = float(found[i] - true[j])
        near = tolerance + 1e-9
        matched += int(abs(late) <= near)
        i, j = i + (late <= near), j + (late >= -near)
    return matched


def f1(takes: Sequence[Take], segments: SegmentsOf) -> np.ndarray:
    """Return percent F1 at every tolerance of one way to cut takes, boundaries pooled over them."""
    pairs = [
        [take.times[runs(ids)[0][1:]] for ids in (segments(take), attention_segments(take.segment))]
        for take in takes
    ]
    total = max(sum(len(found) + len(true) for found, true in pairs), 1)
    return np.array([200 * sum(hits(a, b, t) for a, b in pairs) / total for t in TOLERANCES])


def random_segments(tokens: int, seed: int) -> SegmentsOf:
    """Return as many boundaries as the mean length asks for, anywhere in the take."""
    rng = np.random.default_rng(seed)

    def segments(take: Take) -> np.ndarray:
        count = len(take.times)
        begins = rng.choice(np.arange(1, count), max(0, round(count / tokens) - 1), replace=False)
        return np.cumsum(np.bincount(begins, minlength=count))

    return segments


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one row per kind of segment and tolerance."""
    stream, table = StreamReader(paths.STREAM), read_takes(paths.TAKES_TABLE)
    seen = pretraining_takes(table)
    training = list(stream.read_many([take for take in stream.takes if take in seen]))
    takes = list(stream.read_many(table.loc[table["split"].isin(["val", "test"]), "take_id"]))
    segments = sum(int(attention_segments(take.segment)[-1]) + 1 for take in training)
    mean = round(sum(len(take.times) for take in training) / segments)
    config, features = FoundConfig(mean, 4 * mean), [take.features for take in training]
    std = np.concatenate(features).std(axis=0, dtype=np.float64)
    found = FoundParameters(config, fit_threshold(features, config, std), std)
    rules = {
        "found": SegmentRule("found", mean, found),
        "fixed": SegmentRule("fixed", mean, None),
    }
    chance = np.mean([f1(takes, random_segments(mean, seed)) for seed in range(DRAWS)], axis=0)
    rows = Table()
    for name, rule in rules.items():
        ours = f1(takes, lambda take, rule=rule: take_segments(take.features, None, rule))  # type: ignore[misc]
        for tolerance, value, reference in zip(TOLERANCES, ours, chance, strict=True):
            rows.add(f"{name}, F1 {tolerance:g} s", row(float(value), float(reference), "%"))
    rows.save(json_file)


if __name__ == "__main__":
    typer.run(main)
