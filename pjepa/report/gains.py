"""Gains of one cell over another by take, class and segment length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pjepa.metrics.bootstrap import Interval, group_weights, resampled_interval
from pjepa.metrics.lengths import LengthBin, length_bins, length_edges, take_hits
from pjepa.metrics.segmentation import THRESHOLDS, class_table
from pjepa.report.config import ReportConfig
from pjepa.report.results import Cell, CellStatistics, Predictions, Results
from pjepa.storage.reading import read_object
from pjepa.ui.console import InputError


@dataclass(frozen=True)
class Gain:
    """One take's `acc` before (raw, or the first experiment) and after, in percent."""

    take_id: str
    before: float
    after: float

    @property
    def points(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class ChosenTake:
    """A take to draw, and why it was chosen."""

    gain: Gain
    why: str
    name: str


@dataclass(frozen=True)
class ClassGain:
    """One class: share of its frames that are right before and after, and the difference."""

    label: int
    frames: float
    before: float
    after: float
    gain: Interval


def take_gains(before: Cell, after: Cell) -> list[Gain]:
    """Return every reported take, largest gain first."""
    gains = [
        Gain(take, take_accuracy(before, take), take_accuracy(after, take))
        for take in before.statistics.variants[0]
    ]
    return sorted(gains, key=lambda gain: (-gain.points, gain.take_id))


def take_accuracy(cell: Cell, take: str, variant: int | None = None) -> float:
    """Return percent of the take's action tokens that are right, a mean over variants or of one."""
    variants = cell.statistics.variants
    chosen = variants if variant is None else [variants[variant]]
    rows = [statistics[take] for statistics in chosen]
    return float(np.mean([100 * r.action_correct / max(r.action_frames, 1.0) for r in rows]))


def chosen_takes(gains: Sequence[Gain], count: int) -> list[ChosenTake]:
    """Return best, median and worst by gain, then takes evenly between."""
    last = len(gains) - 1
    between = np.linspace(0, last, max(count, 2)).round().astype(int).tolist()
    named = {last: "worst", last // 2: "median", 0: "best"}
    order = dict.fromkeys([0, last // 2, last, *between, *range(len(gains))])
    ranks = [rank for rank in order if 0 <= rank <= last][:count]
    return [
        ChosenTake(
            gains[rank],
            f"{named.get(rank, f'number {rank + 1}')} of {len(gains)} takes by gain",
            named.get(rank, f"take-{number}"),
        )
        for number, rank in enumerate(ranks, 1)
    ]


def class_gains(
    before: CellStatistics, after: CellStatistics, config: ReportConfig
) -> list[ClassGain]:
    """Return every class that occurs, largest gain first; intervals over resampled groups.

    A resample without the class says nothing about it and is left out.
    """
    takes = sorted(before.groups)
    weights = group_weights([before.groups[t] for t in takes], config.bootstrap, config.seed)
    labels = sorted({c[0] for v in before.variants for t in takes for c in v[t].classes if c[2]})
    first, frames = _class_shares(before, takes, labels, weights)
    second, _ = _class_shares(after, takes, labels, weights)
    gains, count = [], len(set(before.groups.values()))
    for label, tokens, ours, theirs in zip(labels, frames.T, second.T, first.T, strict=True):
        change = (ours - theirs)[tokens > 0]
        gain = resampled_interval(change if len(change) > 1 else change.repeat(2), count)
        gains.append(ClassGain(label, float(tokens[0]), float(theirs[0]), float(ours[0]), gain))
    return sorted(gains, key=lambda row: (-row.gain.mean, row.label))


def _class_shares(
    cell: CellStatistics, takes: Sequence[str], labels: Sequence[int], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return percent correct and number of every class's frames, [rows, classes] each."""
    shares, counts = [], np.zeros(0)
    for variant in cell.variants:
        rows = [variant[take] for take in takes]
        present = sorted({row[0] for take in rows for row in take.classes})
        columns = [present.index(label) for label in labels]
        sums = np.tensordot(weights, class_table(rows)[:, :, columns], 1)  # [rows, 3, classes]
        counts = sums[:, 1]
        shares.append(100.0 * sums[:, 0] / np.where(counts > 0, counts, 1.0))
    return np.mean(shares, axis=0), counts


def f1_by_length(
    predictions: Mapping[str, Predictions], background: int | None, bins: int
) -> dict[str, list[LengthBin]]:
    """Return F1@50 by segment length of every given cell, in bins of equally many true segments."""
    threshold = THRESHOLDS["f1_50"]
    hits = {
        name: [
            take_hits(take.labels, take.predicted, take.step_s, background, threshold)
            for take in takes.values()
        ]
        for name, takes in predictions.items()
    }
    first = next(iter(hits.values()))
    edges = length_edges(np.concatenate([take.true_s for take in first]), bins)
    return {name: length_bins(rows, edges) for name, rows in hits.items()}


# What only the demo can show, because its truth is known: ceilings, gap closed, primitives.

PROBE = "linear"
GAP_READERS = ("raw", "random", "history", "pjepa")
# Points that the demo promises on `procedure` order, as the median over five data seeds.
PRIMITIVE_NEEDED, GAP_NEEDED = 60.0, 50.0
GAINS_NEEDED = {
    ("pjepa", "raw"): 15.0,
    ("pjepa", "random"): 10.0,
    ("pjepa", "time"): 10.0,
    ("pjepa_segment", "segment_mean"): 0.0,
}


@dataclass(frozen=True)
class DemoNumbers:
    """Ceilings of `acc`, the share of the gap between them closed, primitives read; percent."""

    order: str
    appearance: float
    history: float
    gap_closed: Mapping[str, float]
    primitive: Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """One line of the proof: what was measured, what is promised (None: shown as it is)."""

    what: str
    value: float
    unit: str
    needed: float | None = None
    interval: Interval | None = None

    @property
    def holds(self) -> bool | None:
        """Return whether the promise is kept, with an interval that excludes 0.

        None if there is none.
        """
        if self.needed is None:
            return None
        sure = self.interval is None or self.interval.above_zero
        return self.value >= self.needed and sure


def demo_numbers(results: Results, ceilings: Path) -> DemoNumbers | None:
    """Return the demo's numbers, or None where there is no demo or no linear probe."""
    if not ceilings.exists() or PROBE not in results.probes:
        return None
    truth = read_object(ceilings, "split", "order", "appearance", "history")
    cells = {cell.representation: cell for cell in results.of_probe(PROBE)}
    split = next(iter(cells.values())).split
    if truth["split"] != split:
        raise InputError(f"{ceilings}: computed on {truth['split']}, but cells report {split}")
    low, high = float(truth["appearance"]["acc"]), float(truth["history"]["acc"])
    closed = {
        name: 100.0 * (cells[name].metrics["acc"] - low) / (high - low)
        for name in GAP_READERS
        if name in cells and high > low
    }
    readings = {name: cell.readings for name, cell in cells.items()}
    primitive = {name: row["primitive"] for name, row in readings.items() if "primitive" in row}
    return DemoNumbers(truth["order"], low, high, closed, primitive)


def proof_claims(results: Results, demo: DemoNumbers) -> list[Claim]:
    """Return the lines of the proof; a shuffled world promises nothing, so it only shows values."""
    kept = demo.order == "procedure"
    claims = []
    for name, value in demo.primitive.items():
        needed = PRIMITIVE_NEEDED if kept and name == "raw" else None
        claims.append(Claim(f"true primitive read from {name}", value, "%", needed))
    for pair, points in [*GAINS_NEEDED.items(), (("pjepa", "history"), None)]:
        difference = results.difference(PROBE, *pair)
        if difference is not None:
            gain = difference.intervals["acc"]
            needed = points if kept else None
            claims.append(Claim(difference.name, gain.mean, "points", needed, gain))
    for name, value in demo.gap_closed.items():
        needed = GAP_NEEDED if kept and name == "pjepa" else None
        claims.append(Claim(f"gap between the ceilings closed by {name}", value, "%", needed))
    return claims
