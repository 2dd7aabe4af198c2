"""Several experiments (pretraining seeds, say) pooled: `pjepa compare`.

The spread says how far a score moved between the experiments. The interval says how far it could
move on other recordings: groups are resampled, and the runs of all experiments are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from pjepa.config.report import ReportConfig
from pjepa.errors import InputError
from pjepa.metrics.bootstrap import Interval, difference_intervals, intervals
from pjepa.probes.stored import CellStatistics
from pjepa.report.experiments import Experiment, Key
from pjepa.report.results import REFERENCES, Cell, Difference, Results
from pjepa.report.tables import metric_names


@dataclass(frozen=True)
class Comparison:
    """The cells that every experiment has, pooled. `between`: second - first, if there are two."""

    experiments: tuple[Experiment, ...]
    pooled: Results
    between: Mapping[Key, Mapping[str, Interval]]

    def values(self, cell: Cell, metric: str) -> list[float]:
        """The score of one pooled cell in every experiment."""
        key = (cell.probe, cell.representation)
        return [experiment.cells[key].metrics[metric] for experiment in self.experiments]

    def references(self, probe: str) -> list[str]:
        """The representations that the others of a probe are held against."""
        return [name for name in REFERENCES if self.pooled.cell(probe, name)]

    @property
    def left_out(self) -> list[str]:
        """The cells that only some of the experiments list."""
        keys = dict.fromkeys(key for experiment in self.experiments for key in experiment.cells)
        return ["-".join(key) for key in keys if self.pooled.cell(*key) is None]


def comparison(experiments: Sequence[Experiment]) -> Comparison:
    """The cells that every experiment lists, pooled; what cannot be paired is refused.

    Number and seed of the resamples are those of the first experiment's `report` section.
    """
    first = experiments[0]
    keys = [key for key in first.cells if all(key in e.cells for e in experiments)]
    if not keys:
        names = ", ".join(e.name for e in experiments)
        raise InputError(f"{names}: no cell that all of them list; see `cells` in params.yaml")
    for place, other in enumerate(experiments):
        for earlier in experiments[:place]:
            if earlier.commit == other.commit:
                raise InputError(f"{earlier.name} and {other.name}: the same commit; name it once")
        for key in keys:
            _check_paired(first, other, key)
    cells = [pooled_cell([e.cells[key] for e in experiments], first.report) for key in keys]
    between = {}
    if len(experiments) == 2:
        second = experiments[1].cells
        between = {key: _difference(second[key], first.cells[key], first.report) for key in keys}
    pooled = Results(tuple(cells), reference_differences(cells, first.report))
    return Comparison(tuple(experiments), pooled, between)


def pooled_cell(cells: Sequence[Cell], config: ReportConfig) -> Cell:
    """One cell over experiments: mean scores, and intervals with all runs as variants.

    Every experiment counts the same: its runs are repeated where another has more.
    """
    runs = math.lcm(*(len(cell.statistics.variants) for cell in cells))
    variants = [
        variant
        for cell in cells
        for variant in cell.statistics.variants
        for _ in range(runs // len(cell.statistics.variants))
    ]
    names, groups = metric_names(cells), cells[0].statistics.groups
    found = intervals(variants, groups, config.bootstrap, config.seed, cells[0].convention)
    return replace(
        max(cells, key=lambda cell: (cell.used_labels, cell.given_boundaries)),  # for its marks
        metrics={name: fmean(cell.metrics[name] for cell in cells) for name in names},
        paper={},
        intervals={name: found[name] for name in names},
        statistics=CellStatistics(variants, groups),
        streamed={},
        runs=sum(cell.runs for cell in cells),
    )


def reference_differences(cells: Sequence[Cell], config: ReportConfig) -> tuple[Difference, ...]:
    """Every cell minus the references that its probe has."""
    by_key = {(cell.probe, cell.representation): cell for cell in cells}
    return tuple(
        Difference(c.probe, c.representation, name, _difference(c, by_key[c.probe, name], config))
        for c in cells
        for name in REFERENCES
        if name != c.representation and (c.probe, name) in by_key
    )


def _difference(first: Cell, second: Cell, config: ReportConfig) -> dict[str, Interval]:
    a, b = first.statistics, second.statistics
    return difference_intervals(
        a.variants, b.variants, a.groups, config.bootstrap, config.seed, first.convention
    )


def _check_paired(first: Experiment, other: Experiment, key: Key) -> None:
    reason = unpaired_reason(first.cells[key], other.cells[key])
    if reason:
        raise InputError(
            f"{first.name} and {other.name}: cannot be paired, {'-'.join(key)} has {reason}; "
            "compare experiments on the same takes (params `data`, `tokens`)"
        )


def unpaired_reason(first: Cell, second: Cell) -> str:
    """How the reported takes of two cells differ; empty where their scores can be paired."""
    for what in ("split", "convention"):
        if getattr(first, what) != getattr(second, what):
            return f"{what} {getattr(first, what)} in one, {getattr(second, what)} in the other"
    ours, theirs = first.statistics.groups, second.statistics.groups
    alone = sorted(set(ours) ^ set(theirs))
    if alone:
        return f"{len(alone)} takes in only one of them, such as {alone[0]!r}"
    for take in ours:
        if ours[take] != theirs[take]:
            return f"take {take!r} in group {ours[take]!r} here, {theirs[take]!r} there"
        if _truth(first, take) != _truth(second, take):
            return f"other labels of take {take!r}"
    return ""


def _truth(cell: Cell, take: str) -> tuple[Any, ...]:
    """What the statistics of a take say about its labels alone: ids may be those of other takes."""
    row = cell.statistics.variants[0][take]
    classes = [(label, true) for label, _, true, _ in row.classes if true]
    return row.frames, row.action_frames, row.truth_segments, classes
