"""What `pjepa compare` prints and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjepa.metrics.bootstrap import FEWEST, Interval
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
