"""Several experiments compared: `pjepa compare`.

Runs that differ in seeds alone are averaged, and so are folds of a cross-validation; runs of other
settings stand beside each other. The spread says how far a score moved between runs. The interval
says how far it could move on other recordings: groups are resampled, over all folds together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from pjepa.metrics.bootstrap import Interval, difference_intervals, intervals
from pjepa.report.config import ReportConfig
from pjepa.report.results import REFERENCES, Cell, CellStatistics, Difference, Results
from pjepa.report.tables import metric_names
from pjepa.tools.compare.experiments import Experiment, Key
from pjepa.ui.console import InputError

# Which parameters experiments differ in, and which of them are other runs of the same settings.

ABSENT = "(absent)"
SEED = re.compile(r"(^|[._])seeds?$")
NEUTRAL = ("machine", "report", "cells")  # sections that change no run


def by_settings(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Return experiments with the same settings together.

    Seeds, folds and the machine are no settings.
    """
    found: list[list[Experiment]] = []
    for experiment in experiments:
        for part in found:
            if not changed_settings(part[0].params, experiment.params):
                part.append(experiment)
                break
        else:
            found.append([experiment])
    return found


def changed_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the parameters that differ and make a different experiment, not just another run."""
    return [
        name
        for name in changed_params(first, second)
        if name.split(".")[0] not in NEUTRAL
        and name != "data.fold"
        and (name == "data.seed" or not SEED.search(name))
    ]


def changed_params(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[str, str]]:
    """Return every parameter whose value differs, by its dotted name."""
    found: dict[str, tuple[str, str]] = {}
    for key in dict.fromkeys([*first, *second]):
        a, b = first.get(key, ABSENT), second.get(key, ABSENT)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found |= changed_params(a, b, f"{prefix}{key}.")
        elif a != b:
            found[f"{prefix}{key}"] = (str(a), str(b))
    return found


def params_table(experiments: Sequence[Experiment]) -> list[list[str]]:
    """Return a row for every parameter that differs: its name and each value.

    The kind of device is one of them: DVC reuses what another device computed.
    """
    first, rows = experiments[0].params, dict[str, list[str]]()
    for place, other in enumerate(experiments[1:], 1):
        for name, (ours, theirs) in changed_params(first, other.params).items():
            row = rows.setdefault(name, [ours] * len(experiments))
            row[place] = theirs
    devices = [experiment.devices for experiment in experiments]
    if len(set(devices)) > 1:
        rows["computed on"] = devices
    return [[name, *values] for name, values in rows.items()]


@dataclass(frozen=True)
class Arm:
    """Experiments that are averaged, and the cells that every experiment has, pooled."""

    experiments: tuple[Experiment, ...]
    pooled: Results

    @property
    def name(self) -> str:
        return ", ".join(experiment.name for experiment in self.experiments)

    def values(self, cell: Cell, metric: str) -> list[float]:
        """Return the score of one pooled cell in every experiment."""
        key = (cell.probe, cell.representation)
        return [experiment.cells[key].metrics[metric] for experiment in self.experiments]

    def references(self, probe: str) -> list[str]:
        """Return the representations that the others of a probe are held against."""
        return [name for name in REFERENCES if self.pooled.cell(probe, name)]


@dataclass(frozen=True)
class Comparison(Arm):
    """All experiments as one arm, the arms they fall into, and what two sides differ by.

    `between`: second - first, of two experiments on the same takes, or of two arms.
    """

    arms: tuple[Arm, ...]
    sides: tuple[str, ...]
    between: Mapping[Key, Mapping[str, Interval]]

    @property
    def left_out(self) -> list[str]:
        """Return the cells that only some of the experiments list."""
        keys = dict.fromkeys(key for experiment in self.experiments for key in experiment.cells)
        return ["-".join(key) for key in keys if self.pooled.cell(*key) is None]


def comparison(experiments: Sequence[Experiment]) -> Comparison:
    """Return the cells that every experiment lists, pooled; what cannot be paired is refused.

    Number and seed of the resamples are those of the first experiment's `report` section.
    """
    first = experiments[0]
    keys = [key for key in first.cells if all(key in e.cells for e in experiments)]
    if not keys:
        names = ", ".join(e.name for e in experiments)
        raise InputError(f"{names}: no cell that all of them list; see `cells` in params.yaml")
    _check(experiments, keys)
    every = _arm(experiments, keys, first.report)
    arms = [_arm(part, keys, first.report) for part in by_settings(experiments)]
    if len(arms) == 1:
        arms = [every]
    sides = arms
    if len(experiments) == 2 and len({e.fold for e in experiments}) == 1:
        sides = [_arm([e], keys, first.report) for e in experiments]
    between = {}
    if len(sides) == 2:
        a, b = ({(c.probe, c.representation): c for c in side.pooled.cells} for side in sides)
        between = {key: _difference(b[key], a[key], first.report) for key in keys}
    told = tuple(side.name for side in sides)
    return Comparison(every.experiments, every.pooled, tuple(arms), told, between)


def _arm(experiments: Sequence[Experiment], keys: Sequence[Key], config: ReportConfig) -> Arm:
    folds: dict[int, list[Experiment]] = {}
    for experiment in experiments:
        folds.setdefault(experiment.fold, []).append(experiment)
    cells = []
    for key in keys:
        pooled = [pooled_cell([e.cells[key] for e in part], config) for part in folds.values()]
        cells.append(pooled[0] if len(pooled) == 1 else folded_cell(pooled, config))
    return Arm(tuple(experiments), Results(tuple(cells), reference_differences(cells, config)))


def folded_cell(cells: Sequence[Cell], config: ReportConfig) -> Cell:
    """Return one cell over the folds of a cross-validation: scores are means over folds.

    Intervals are of all tested takes together, because a fold may test a single group.
    """
    runs = math.lcm(*(len(cell.statistics.variants) for cell in cells))
    repeated = [
        [variant for variant in variants for _ in range(runs // len(variants))]
        for variants in (cell.statistics.variants for cell in cells)
    ]
    together = [
        {take: row for part in parts for take, row in part.items()}
        for parts in zip(*repeated, strict=True)
    ]
    groups = {take: name for c in cells for take, name in c.statistics.groups.items()}
    names = metric_names(cells)
    found = intervals(together, groups, config.bootstrap, config.seed, cells[0].convention)
    return replace(
        max(cells, key=lambda cell: (cell.used_labels, cell.given_boundaries)),  # for its marks
        metrics={name: fmean(cell.metrics[name] for cell in cells) for name in names},
        intervals={name: found[name] for name in names},
        statistics=CellStatistics(together, groups),
        runs=sum(cell.runs for cell in cells),
    )


def pooled_cell(cells: Sequence[Cell], config: ReportConfig) -> Cell:
    """Return one cell over experiments: mean scores, and intervals with all runs as variants.

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
    """Return every cell minus the references that its probe has."""
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


def _check(experiments: Sequence[Experiment], keys: Sequence[Key]) -> None:
    """Refuse what is named twice and what cannot be paired: in a fold, or between folds."""
    for place, other in enumerate(experiments):
        for earlier in experiments[:place]:
            if earlier.commit == other.commit:
                raise InputError(f"{earlier.name} and {other.name}: the same commit; name it once")
            for key in keys:
                _check_paired(earlier, other, key)
    folds = [{e.fold for e in part} for part in by_settings(experiments)]
    if any(found != folds[0] for found in folds):
        told = "; ".join(", ".join(map(str, sorted(found))) for found in folds)
        raise InputError(f"settings with other folds (data.fold {told}); run the same for all")


def _check_paired(first: Experiment, other: Experiment, key: Key) -> None:
    a, b = first.cells[key], other.cells[key]
    if first.fold == other.fold:
        reason = unpaired_reason(a, b)
    else:
        shared = sorted(set(a.statistics.groups) & set(b.statistics.groups))
        reason = f"take {shared[0]!r} in the test of both folds" if shared else ""
    if reason:
        raise InputError(
            f"{first.name} and {other.name}: cannot be paired, {'-'.join(key)} has {reason}; "
            "compare experiments on the same takes (params `data`, `tokens`)"
        )


def unpaired_reason(first: Cell, second: Cell) -> str:
    """Return how the reported takes of two cells differ; empty where their scores can be paired."""
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
    """Return the part of a take's statistics that depends on its labels alone."""
    row = cell.statistics.variants[0][take]
    classes = [(label, true) for label, _, true, _ in row.classes if true]
    return row.frames, row.action_frames, row.truth_segments, classes
