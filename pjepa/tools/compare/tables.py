"""What `pjepa compare` prints and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjepa.metrics.bootstrap import FEWEST, Interval
from pjepa.report.results import Cell
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
from pjepa.tools.compare.compare import Arm, Comparison, params_table
from pjepa.ui.console import InputError, print_table

SURE = "*"


def comparison_rows(found: Arm, probe: str, metric: str) -> list[list[str]]:
    """Return representation, mean, spread, interval, differences to the references."""
    rows = []
    for cell in by_privilege(found.pooled.of_probe(probe)):
        values, interval = found.values(cell, metric), cell.intervals[metric]
        row = [marked_name(cell), f"{cell.metrics[metric]:.1f}"]
        row += [f"{min(values):.1f} to {max(values):.1f}", span(interval, ".1f")]
        for name in found.references(probe):
            difference = found.pooled.difference(probe, cell.representation, name)
            row.append(_signed(difference.intervals[metric]) if difference else "")
        rows.append(row)
    return rows


def between_rows(found: Comparison, probe: str, metric: str) -> list[list[str]]:
    """Return representation, its score on each of two sides, and second - first."""
    rows = []
    for cell in by_privilege(found.pooled.of_probe(probe)):
        difference = found.between[cell.probe, cell.representation][metric]
        rows.append([marked_name(cell), *_scores(found, cell, metric), _signed(difference)])
    return rows


def _scores(found: Comparison, cell: Cell, metric: str) -> list[str]:
    """Return the score of a cell on each side: in two experiments of one arm, or in two arms."""
    if len(found.arms) != 2:
        return [f"{value:.1f}" for value in found.values(cell, metric)]
    sides = [arm.pooled.cell(cell.probe, cell.representation) for arm in found.arms]
    return [f"{side.metrics[metric]:.1f}" for side in sides if side is not None]


def _signed(difference: Interval) -> str:
    mark = SURE if difference.excludes_zero else " "
    return f"{with_span(difference)} {mark}"


def check_metric(found: Comparison, metric: str) -> None:
    """Raise where a cell does not have the metric."""
    for probe in found.pooled.probes:
        names = metric_names(found.pooled.of_probe(probe))
        if metric not in names:
            raise InputError(f"metric {metric!r}: {probe} cells have {', '.join(names)}")


def print_comparison(found: Comparison, metric: str) -> None:
    """Print what differs, a table for every probe and arm, and what the numbers mean."""
    names = [experiment.name for experiment in found.experiments]
    changes = params_table(found.experiments)
    if changes:
        print_table("parameters that differ", ["parameter", *names], changes)
    for probe in found.pooled.probes:
        keys = [(probe, cell.representation) for cell in found.pooled.of_probe(probe)]
        cells = [experiment.cells[key] for experiment in found.experiments for key in keys]
        title = with_mark(f"{probe} probe on {cells[0].split}, {metric}, percent", cells)
        for arm in found.arms:
            header = ["representation", "mean", "min to max", "95 % interval"]
            header += [f"- {name}" for name in arm.references(probe)]
            about = f"{title}, {arm.name}" if len(found.arms) > 1 else title
            print_table(about, header, comparison_rows(arm, probe, metric))
        if found.between:
            first, second = found.sides
            header = ["representation", first, second, f"{second} - {first}"]
            print_table(f"{title}, each", header, between_rows(found, probe, metric))
    _print_meaning(found)


def _print_meaning(found: Comparison) -> None:
    for arm in found.arms:
        folds = sorted({experiment.fold for experiment in arm.experiments})
        told = f", folds {', '.join(map(str, folds))}" if len(folds) > 1 else ""
        print(f"mean, min, max over {len(arm.experiments)}{told}: {arm.name}")
    if len(found.arms) > 1:
        print("averaged are runs that differ in seeds and folds alone")
    groups = len(set(found.pooled.cells[0].statistics.groups.values()))
    if groups < FEWEST:
        print(f"{groups} groups are too few for intervals (at least {FEWEST}): none is given")
    else:
        print(f"intervals: paired, over {groups} groups; {SURE}: that of the difference excludes 0")
    if any(cell.used_labels for cell in found.pooled.cells):
        print(LEGEND)
    if found.left_out:
        print(f"left out, not in all: {', '.join(found.left_out)}")


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return every number of every metric.

    `arms` holds what is averaged, in the order of `sides`.
    """
    first, report = found.pooled.cells[0], found.experiments[0].report
    values = {
        "experiments": [
            {"name": e.name, "commit": e.commit, "fold": e.fold} for e in found.experiments
        ],
        "parameters": {name: values for name, *values in params_table(found.experiments)},
        "left_out": found.left_out,
        "split": first.split,
        "convention": first.convention,
        "takes": len(first.statistics.groups),
        "groups": len(set(first.statistics.groups.values())),
        "bootstrap": {"resamples": report.bootstrap, "seed": report.seed},
        "arms": [_arm_json(arm) for arm in found.arms],
        "between": [
            {"probe": probe, "representation": name, **_differences_json(values)}
            for (probe, name), values in found.between.items()
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
