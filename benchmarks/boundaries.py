"""Boundaries found without labels: `python -m benchmarks.boundaries [--json FILE]`.

Percent F1 of boundaries within 0.5 s and 1 s of annotated ones on val and test takes, and how late
a found boundary is. All rows have the mean segment length of the annotated training takes (or
`--tokens`); annotations decide nothing else. The reference is random boundaries of the same rate.
Segments of the demo last 2.8 s, so even fixed blocks do well within 1 s; 0.5 s is more informative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.workers import Row, row, save_rows
from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import SegmentKind
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


@dataclass(frozen=True)
class Score:
    """F1 in percent by tolerance, mean delay of hits in seconds, mean segment length."""

    f1: tuple[float, ...]
    delay_s: float
    tokens: float


def boundary_times(take: Take, segment: np.ndarray) -> np.ndarray:
    """Return when segments begin, the first one left out [S - 1]."""
    return take.times[runs(segment)[0][1:]]


def matched(found: np.ndarray, true: np.ndarray, tolerance: float) -> list[float]:
    """Return delays of the largest one-to-one matching within the tolerance (earliest first)."""
    delays, i, j = [], 0, 0
    near = tolerance + 1e-9
    while i < len(found) and j < len(true):
        delay = float(found[i] - true[j])
        if abs(delay) <= near:
            delays.append(delay)
        i, j = i + (delay <= near), j + (delay >= -near)
    return delays


def score(takes: list[Take], segments: SegmentsOf) -> Score:
    """Return the score of one way to cut takes, boundaries pooled over them."""
    cut = [segments(take) for take in takes]
    found = [boundary_times(take, ids) for take, ids in zip(takes, cut, strict=True)]
    true = [boundary_times(take, attention_segments(take.segment)) for take in takes]
    total = sum(map(len, found)) + sum(map(len, true))
    f1, delays = [], [0.0]
    for tolerance in TOLERANCES:
        hits = [matched(f, t, tolerance) for f, t in zip(found, true, strict=True)]
        delays = [delay for part in hits for delay in part] or [0.0]
        f1.append(200.0 * sum(map(len, hits)) / max(total, 1))
    length = sum(map(len, cut)) / sum(int(ids[-1]) + 1 for ids in cut)
    return Score(tuple(f1), float(np.mean(delays)), length)


def ruled_segments(rule: SegmentRule) -> SegmentsOf:
    """Return the segments from the features alone."""
    return lambda take: take_segments(take.features, None, rule)


def random_segments(tokens: int, seed: int) -> SegmentsOf:
    """Return as many boundaries as the mean length asks for, anywhere in the take."""
    rng = np.random.default_rng(seed)

    def segments(take: Take) -> np.ndarray:
        count = len(take.times)
        begins = rng.choice(np.arange(1, count), max(0, round(count / tokens) - 1), replace=False)
        return np.cumsum(np.bincount(begins, minlength=count))

    return segments


def rows(training: list[Take], takes: list[Take], config: FoundConfig) -> dict[str, Score]:
    """Return the score of every kind of segment; random is a mean over draws."""
    std = np.concatenate([take.features for take in training]).std(axis=0, dtype=np.float64)
    kinds: tuple[SegmentKind, ...] = ("found", "fixed")
    table = {}
    for kind in kinds:
        found = None
        if kind == "found":
            threshold = fit_threshold([take.features for take in training], config, std)
            found = FoundParameters(config, threshold, std)
        rule = SegmentRule(kind, config.tokens, found)
        table[kind] = score(takes, ruled_segments(rule))
    draws = [score(takes, random_segments(config.tokens, seed)) for seed in range(DRAWS)]
    f1 = np.mean([draw.f1 for draw in draws], axis=0)
    late, length = (np.mean([getattr(d, name) for d in draws]) for name in ("delay_s", "tokens"))
    return table | {"random": Score(tuple(f1.tolist()), float(late), float(length))}


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Mean segment length; 0: the annotated one.")] = 0,
) -> None:
    """Print one row per kind of segment."""
    stream, table = StreamReader(paths.STREAM), read_takes(paths.TAKES_TABLE)
    training = [stream.read(take) for take in stream.takes if take in pretraining_takes(table)]
    wanted = set(table.loc[table["split"].isin(["val", "test"]), "take_id"])
    takes = [stream.read(take) for take in stream.takes if take in wanted]
    segments = sum(int(attention_segments(take.segment)[-1]) + 1 for take in training)
    mean = tokens or round(sum(len(take.times) for take in training) / segments)
    found = rows(training, takes, FoundConfig(mean, 4 * mean))
    names = [f"F1 {tolerance:g} s" for tolerance in TOLERANCES]
    print(f"{'segments':10}" + "".join(f"{n:>10}" for n in (*names, "delay s", "tokens")))
    cases: dict[str, Row] = {}
    for kind, scores in found.items():
        values = (*scores.f1, scores.delay_s, scores.tokens)
        print(f"{kind:10}" + "".join(f"{value:10.2f}" for value in values))
        for name, ours, reference in zip(names, scores.f1, found["random"].f1, strict=True):
            cases[f"{kind}, {name}"] = row(ours, reference, "%")
    save_rows(cases, json_file)


if __name__ == "__main__":
    typer.run(main)
