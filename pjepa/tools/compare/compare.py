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
from itertools import chain, combinations
from statistics import fmean
from typing import Any

from pjepa.metrics.bootstrap import FEWEST, Interval, Statistics, intervals
from pjepa.report.config import ReportConfig
from pjepa.report.results import (
    REFERENCES,
    Cell,
    CellStatistics,
    Difference,
    Results,
    statistics_difference,
)
from pjepa.report.tables import (
    LEGEND,
    by_privilege,
    difference_json,
    marked_name,
    metric_names,
    rounded,
    span,
    with_mark,
    with_span,
)
from pjepa.tools.compare.experiments import Experiment, Key
from pjepa.tools.params import dotted
from pjepa.ui.console import InputError, print_table

# Which parameters experiments differ in, and which of them are other runs of the same settings.

ABSENT = "(absent)"
SEED = re.compile(r"(^|[._])seeds?$")
NEUTRAL = ("machine", "report", "cells")  # sections that change no run


def by_settings(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Return experiments with the same settings together.

    Seeds, folds and the machine are no settings.
    """
    alike: list[tuple[dict[str, Any], list[Experiment]]] = []
    for experiment in experiments:
        own = settings(experiment.params)
        others = next((others for known, others in alike if known == own), None)
        if others is None:
            alike.append((own, others := []))
        others.append(experiment)
    return [others for _, others in alike]


def settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that make a different experiment, not just another run."""
    return {
        name: value
        for name, value in dotted(params).items()
        if name.split(".")[0] not in NEUTRAL
        and name != "data.fold"
        and (name == "data.seed" or not SEED.search(name))
    }


def changed_params(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return every parameter whose value differs, by its dotted name."""
    ours, theirs = dotted(first), dotted(second)
    pairs = {n: (ours.get(n, ABSENT), theirs.get(n, ABSENT)) for n in {**ours, **theirs}}
    return {name: (str(a), str(b)) for name, (a, b) in pairs.items() if a != b}


def params_table(experiments: Sequence[Experiment]) -> list[list[str]]:
    """Return a row for every parameter that differs: its name and each value.

    The kind of device is one of them: DVC reuses what another device computed.
    """
    first, rows = experiments[0].params, dict[str, list[str]]()
    for column, other in enumerate(experiments[1:], 1):
        for name, (ours, theirs) in changed_params(first, other.params).items():
            rows.setdefault(name, [ours] * len(experiments))[column] = theirs
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

    Sides are two experiments on the same takes, or two arms; `between` is second - first.
    """

    arms: tuple[Arm, ...]
    sides: tuple[Arm, ...]
    between: Mapping[Key, Mapping[str, Interval]]

    @property
    def left_out(self) -> list[str]:
        """Return the cells that only some of the experiments list."""
        keys = dict.fromkeys(key for experiment in self.experiments for key in experiment.cells)
        return ["-".join(key) for key in keys if self.pooled.cell(*key) is None]


def compare_experiments(experiments: Sequence[Experiment]) -> Comparison:
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
    arms = [_arm(alike, keys, first.report) for alike in by_settings(experiments)]
    if len(arms) == 1:
        arms = [every]
    sides, between = arms, {}
    if len(experiments) == 2 and len({e.fold for e in experiments}) == 1:
        sides = [_arm([e], keys, first.report) for e in experiments]
    if len(sides) == 2:
        pairs = zip(keys, *(side.pooled.cells for side in sides), strict=True)
        between = {key: _difference(theirs, ours, first.report) for key, ours, theirs in pairs}
    return Comparison(every.experiments, every.pooled, tuple(arms), tuple(sides), between)


def _arm(experiments: Sequence[Experiment], keys: Sequence[Key], config: ReportConfig) -> Arm:
    folds: dict[int, list[Experiment]] = {}
    for experiment in experiments:
        folds.setdefault(experiment.fold, []).append(experiment)
    by_key = {
        key: pooled_cell([[e.cells[key] for e in same] for same in folds.values()], config)
        for key in keys
    }
    differences = tuple(
        Difference(probe, name, other, _difference(cell, by_key[probe, other], config))
        for (probe, name), cell in by_key.items()
        for other in REFERENCES
        if other != name and (probe, other) in by_key
    )
    return Arm(tuple(experiments), Results(tuple(by_key.values()), differences))


def pooled_cell(folds: Sequence[Sequence[Cell]], config: ReportConfig) -> Cell:
    """Return one cell over experiments, by fold: mean scores, and intervals over all runs.

    Scores of a cross-validation are means over folds. Its intervals are of all tested takes
    together, because a fold may test a single group.
    """
    cells = [cell for same in folds for cell in same]
    of_folds = [[*chain(*_as_many([c.statistics.variants for c in same]))] for same in folds]
    runs = [
        {take: row for fold in variants for take, row in fold.items()}
        for variants in zip(*_as_many(of_folds), strict=True)
    ]
    groups = {take: name for cell in cells for take, name in cell.statistics.groups.items()}
    names = metric_names(cells)
    of_all = intervals(runs, groups, config.bootstrap, config.seed, cells[0].convention)
    return replace(
        max(cells, key=lambda cell: (cell.used_labels, cell.given_boundaries)),  # for its marks
        metrics={n: fmean(fmean(c.metrics[n] for c in same) for same in folds) for n in names},
        paper={},
        intervals={name: of_all[name] for name in names},
        statistics=CellStatistics(runs, groups),
        streamed={},
        runs=sum(cell.runs for cell in cells),
    )


def _as_many(sets: Sequence[Sequence[Statistics]]) -> list[list[Statistics]]:
    """Return sets of runs, repeated where another set has more: all count the same."""
    most = math.lcm(*map(len, sets))
    return [[run for run in runs for _ in range(most // len(runs))] for runs in sets]


def _difference(first: Cell, second: Cell, config: ReportConfig) -> dict[str, Interval]:
    return statistics_difference(first.statistics, second.statistics, first.convention, config)


def _check(experiments: Sequence[Experiment], keys: Sequence[Key]) -> None:
    """Refuse what is named twice and what cannot be paired: in a fold, or between folds."""
    for earlier, other in combinations(experiments, 2):
        if earlier.commit == other.commit:
            raise InputError(f"{earlier.name} and {other.name}: the same commit; name it once")
        for key in keys:
            _check_paired(earlier, other, key)
    folds = [sorted({e.fold for e in alike}) for alike in by_settings(experiments)]
    if any(numbers != folds[0] for numbers in folds):
        named = "; ".join(", ".join(map(str, numbers)) for numbers in folds)
        raise InputError(f"settings with other folds (data.fold {named}); run the same for all")


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


# What is printed, and written as JSON.

SURE = "*"


def comparison_rows(arm: Arm, probe: str, metric: str) -> list[list[str]]:
    """Return representation, mean, spread, interval, differences to the references."""
    rows = []
    for cell in by_privilege(arm.pooled.of_probe(probe)):
        values = arm.values(cell, metric)
        row = [marked_name(cell), f"{cell.metrics[metric]:.1f}"]
        row += [f"{min(values):.1f} to {max(values):.1f}", span(cell.intervals[metric], ".1f")]
        for name in arm.references(probe):
            difference = arm.pooled.difference(probe, cell.representation, name)
            row.append(_starred(difference.intervals[metric]) if difference else "")
        rows.append(row)
    return rows


def between_rows(comparison: Comparison, probe: str, metric: str) -> list[list[str]]:
    """Return representation, its score on each of two sides, and second - first."""
    rows = []
    for cell in by_privilege(comparison.pooled.of_probe(probe)):
        key = (probe, cell.representation)
        sides = filter(None, (side.pooled.cell(*key) for side in comparison.sides))
        scores = [f"{side.metrics[metric]:.1f}" for side in sides]
        rows.append([marked_name(cell), *scores, _starred(comparison.between[key][metric])])
    return rows


def _starred(difference: Interval) -> str:
    return f"{with_span(difference)} {SURE if difference.excludes_zero else ' '}"


def check_metric(comparison: Comparison, metric: str) -> None:
    """Raise where a cell does not have the metric."""
    for probe in comparison.pooled.probes:
        names = metric_names(comparison.pooled.of_probe(probe))
        if metric not in names:
            raise InputError(f"metric {metric!r}: {probe} cells have {', '.join(names)}")


def print_comparison(comparison: Comparison, metric: str) -> None:
    """Print what differs, a table for every probe and arm, and what the numbers mean."""
    names = [experiment.name for experiment in comparison.experiments]
    changes = params_table(comparison.experiments)
    if changes:
        print_table("parameters that differ", ["parameter", *names], changes)
    for probe in comparison.pooled.probes:
        keys = [(probe, cell.representation) for cell in comparison.pooled.of_probe(probe)]
        cells = [experiment.cells[key] for experiment in comparison.experiments for key in keys]
        title = with_mark(f"{probe} probe on {cells[0].split}, {metric}, percent", cells)
        for arm in comparison.arms:
            header = ["representation", "mean", "min to max", "95 % interval"]
            header += [f"- {name}" for name in arm.references(probe)]
            about = f"{title}, {arm.name}" if len(comparison.arms) > 1 else title
            print_table(about, header, comparison_rows(arm, probe, metric))
        if comparison.between:
            first, second = (side.name for side in comparison.sides)
            header = ["representation", first, second, f"{second} - {first}"]
            print_table(f"{title}, each", header, between_rows(comparison, probe, metric))
    _print_meaning(comparison)


def _print_meaning(comparison: Comparison) -> None:
    for arm in comparison.arms:
        folds = sorted({experiment.fold for experiment in arm.experiments})
        which = f", folds {', '.join(map(str, folds))}" if len(folds) > 1 else ""
        print(f"mean, min, max over {len(arm.experiments)}{which}: {arm.name}")
    if len(comparison.arms) > 1:
        print("averaged are runs that differ in seeds and folds alone")
    groups = len(set(comparison.pooled.cells[0].statistics.groups.values()))
    if groups < FEWEST:
        print(f"{groups} groups are too few for intervals (at least {FEWEST}): none is given")
    else:
        print(f"intervals: paired, over {groups} groups; {SURE}: that of the difference excludes 0")
    if any(cell.used_labels for cell in comparison.pooled.cells):
        print(LEGEND)
    if comparison.left_out:
        print(f"left out, not in all: {', '.join(comparison.left_out)}")


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return every number of every metric.

    `arms` holds what is averaged, in the order of `sides`.
    """
    first, report = comparison.pooled.cells[0], comparison.experiments[0].report
    values = {
        "experiments": [
            {"name": e.name, "commit": e.commit, "fold": e.fold} for e in comparison.experiments
        ],
        "parameters": {name: values for name, *values in params_table(comparison.experiments)},
        "left_out": comparison.left_out,
        "split": first.split,
        "convention": first.convention,
        "takes": len(first.statistics.groups),
        "groups": len(set(first.statistics.groups.values())),
        "bootstrap": {"resamples": report.bootstrap, "seed": report.seed},
        "arms": [_arm_json(arm) for arm in comparison.arms],
        "between": [
            {"probe": probe, "representation": name, **_differences_json(values)}
            for (probe, name), values in comparison.between.items()
        ],
    }
    return rounded(values)


def _arm_json(arm: Arm) -> dict[str, Any]:
    """Return numbers of experiments that are averaged; `values` are in the order of their names."""
    cells: dict[str, dict[str, Any]] = {probe: {} for probe in arm.pooled.probes}
    for cell in arm.pooled.cells:
        cells[cell.probe][cell.representation] = {
            name: vars(cell.intervals[name])
            | {"mean": cell.metrics[name], "min": min(values), "max": max(values)}
            | {"values": values}
            for name, values in ((name, arm.values(cell, name)) for name in cell.metrics)
        }
    return {
        "experiments": [experiment.name for experiment in arm.experiments],
        "cells": cells,
        "differences": [
            {"probe": d.probe, "first": d.first, "second": d.second}
            | _differences_json(d.intervals)
            for d in arm.pooled.differences
        ],
    }


def _differences_json(differences: Mapping[str, Interval]) -> dict[str, Any]:
    return {name: difference_json(value) for name, value in differences.items()}
