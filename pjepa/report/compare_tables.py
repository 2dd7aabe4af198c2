"""What `pjepa compare` prints and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pjepa.errors import InputError
from pjepa.metrics.bootstrap import Interval
from pjepa.report.compare import Comparison
from pjepa.report.marks import LEGEND, marked_name, with_mark
from pjepa.report.tables import DIGITS, by_privilege, interval_span, metric_names
from pjepa.report.terminal import print_table

SURE = "*"


def comparison_rows(found: Comparison, probe: str, metric: str) -> list[list[str]]:
    """Representation, mean, spread, interval, differences to the references."""
    rows = []
    for cell in by_privilege(found.pooled.of_probe(probe)):
        values, interval = found.values(cell, metric), cell.intervals[metric]
        row = [marked_name(cell), f"{cell.metrics[metric]:.1f}"]
        row += [_span(min(values), max(values)), _span(interval.low, interval.high)]
        for name in found.references(probe):
            difference = found.pooled.difference(probe, cell.representation, name)
            row.append(_signed(difference.intervals[metric]) if difference else "")
        rows.append(row)
    return rows


def between_rows(found: Comparison, probe: str, metric: str) -> list[list[str]]:
    """Representation, its score in each of two experiments, and second - first."""
    rows = []
    for cell in by_privilege(found.pooled.of_probe(probe)):
        difference = found.between[cell.probe, cell.representation][metric]
        scores = [f"{value:.1f}" for value in found.values(cell, metric)]
        rows.append([marked_name(cell), *scores, _signed(difference)])
    return rows


def _span(low: float, high: float) -> str:
    return f"{low:.1f} to {high:.1f}"


def _signed(difference: Interval) -> str:
    mark = SURE if difference.excludes_zero else " "
    return f"{difference.mean:+.1f} ({interval_span(difference)}) {mark}"


def check_metric(found: Comparison, metric: str) -> None:
    """Raises where a cell does not have the metric."""
    for probe in found.pooled.probes:
        names = metric_names(found.pooled.of_probe(probe))
        if metric not in names:
            raise InputError(f"metric {metric!r}: {probe} cells have {', '.join(names)}")


def print_comparison(found: Comparison, metric: str) -> None:
    """Prints a table for every probe, a second one for two experiments, and what they mean."""
    names = [experiment.name for experiment in found.experiments]
    for probe in found.pooled.probes:
        keys = [(probe, cell.representation) for cell in found.pooled.of_probe(probe)]
        cells = [experiment.cells[key] for experiment in found.experiments for key in keys]
        title = with_mark(f"{probe} probe on {cells[0].split}, {metric}, percent", cells)
        header = ["representation", "mean", "min to max", "95 % interval"]
        header += [f"- {name}" for name in found.references(probe)]
        print_table(title, header, comparison_rows(found, probe, metric))
        if found.between:
            header = ["representation", *names, f"{names[1]} - {names[0]}"]
            print_table(f"{title}, each", header, between_rows(found, probe, metric))
    groups = len(set(found.pooled.cells[0].statistics.groups.values()))
    print(f"mean, min, max over {len(names)}: {', '.join(names)}")
    print(f"intervals: paired, over {groups} groups; {SURE}: that of the difference excludes 0")
    if any(cell.used_labels for cell in found.pooled.cells):
        print(LEGEND)
    if found.left_out:
        print(f"left out, not in all: {', '.join(found.left_out)}")


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Every number of every metric; `values` are in the order of `experiments`."""
    first, report = found.pooled.cells[0], found.experiments[0].report
    cells: dict[str, dict[str, Any]] = {probe: {} for probe in found.pooled.probes}
    for cell in found.pooled.cells:
        values = {
            name: [round(value, DIGITS) for value in found.values(cell, name)]
            for name in cell.metrics
        }
        cells[cell.probe][cell.representation] = {
            name: _interval_json(cell.intervals[name])
            | {"min": min(row), "max": max(row), "values": row}
            for name, row in values.items()
        }
    return {
        "experiments": [{"name": e.name, "commit": e.commit} for e in found.experiments],
        "left_out": found.left_out,
        "split": first.split,
        "convention": first.convention,
        "takes": len(first.statistics.groups),
        "groups": len(set(first.statistics.groups.values())),
        "bootstrap": {"resamples": report.bootstrap, "seed": report.seed},
        "cells": cells,
        "differences": [
            {
                "probe": d.probe,
                "first": d.first,
                "second": d.second,
                **_differences_json(d.intervals),
            }
            for d in found.pooled.differences
        ],
        "between": [
            {"probe": probe, "representation": name, **_differences_json(values)}
            for (probe, name), values in found.between.items()
        ],
    }


def _interval_json(interval: Interval) -> dict[str, Any]:
    return {name: round(value, DIGITS) for name, value in asdict(interval).items()}


def _differences_json(differences: Mapping[str, Interval]) -> dict[str, Any]:
    return {
        name: _interval_json(value) | {"excludes_zero": value.excludes_zero}
        for name, value in differences.items()
    }
