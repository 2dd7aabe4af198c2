"""The results as values: metrics.json (short), report.json (everything), lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pjepa.metrics.bootstrap import Interval
from pjepa.report.gains import Claim, DemoNumbers, proof_claims
from pjepa.report.results import Cell, Difference, Results, Streamed

# Marks beside numbers: the split choices were made on, label budget, labels used upstream.

LABELLED = "†"
LEGEND = f"{LABELLED}: labels went into the features (to train them, or to choose among them)"
CHOSEN = {
    "holdout": "the held-out part of train",
    "val": "val, a published habit",
    "test": "test, a published habit",
    "last": "nothing: the last epoch is kept",
}


def marked_name(cell: Cell) -> str:
    """Return the representation, with a mark if labels went into it."""
    return f"{cell.representation}{LABELLED if cell.used_labels else ''}"


def table_mark(cells: Sequence[Cell]) -> str:
    """Return what sets the cells of a table apart from the honest default.

    Empty if nothing does.
    """
    selections = sorted({cell.selection for cell in cells} - {"holdout"})
    marks = [f"chosen on {name}" if name != "last" else "last epoch" for name in selections]
    budgets = {(c.labels["label_fraction"], c.labels["variant"]) for c in cells}
    for fraction, variant in sorted(budgets):
        if fraction < 1:
            marks.append(f"{100 * fraction:g} % of train labels, {variant} variant")
    return "; ".join(marks)


def with_mark(text: str, cells: Sequence[Cell]) -> str:
    """Return a table's title or corner with what sets its cells apart, in brackets."""
    mark = table_mark(cells)
    return f"{text} ({mark})" if mark else text


DIGITS = 4  # in both files: enough to be rounded once more for print
TRACKED = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")  # the paper's, in metrics.json


def metrics_json(results: Results, demo: DemoNumbers | None) -> dict[str, Any]:
    """Return the Git-tracked numbers: `{probe: {representation: {metric: percent}}, demo: {...}}`.

    Only the paper's metrics, so that `dvc exp show` stays readable; the report has the others.
    """
    values: dict[str, Any] = {
        probe: {
            cell.representation: _rounded({name: cell.metrics[name] for name in TRACKED})
            for cell in results.of_probe(probe)
        }
        for probe in results.probes
    }
    if demo is not None:
        numbers = {"appearance": demo.appearance, "history": demo.history}
        if "pjepa" in demo.gap_closed:
            numbers["gap_closed"] = demo.gap_closed["pjepa"]
        numbers |= {f"primitive_{name}": value for name, value in demo.primitive.items()}
        values["demo"] = _rounded(numbers)
    return values


def report_json(results: Results, demo: DemoNumbers | None) -> dict[str, Any]:
    """Return everything the report knows, intervals included."""
    first = results.cells[0]
    values: dict[str, Any] = {
        "split": first.split,
        "takes": len(first.statistics.groups),
        "groups": len(set(first.statistics.groups.values())),
        "convention": first.convention,
        "cells": {
            probe: {c.representation: _cell_json(c) for c in results.of_probe(probe)}
            for probe in results.probes
        },
        "differences": [_difference_json(difference) for difference in results.differences],
    }
    if demo is not None:
        claims = [_claim_json(claim) for claim in proof_claims(results, demo)]
        numbers = {"appearance": demo.appearance, "history": demo.history}
        values["demo"] = {"order": demo.order, "ceilings": _rounded(numbers), "claims": claims}
        values["demo"] |= {
            "gap_closed": _rounded(demo.gap_closed),
            "primitive": _rounded(demo.primitive),
        }
    return values


def headline_rows(results: Results, probe: str) -> list[list[str]]:
    """Return representation and headline metrics with one decimal, equal privileges together."""
    cells = results.of_probe(probe)
    names = metric_names(cells)
    return [
        [marked_name(cell), *(f"{cell.metrics[name]:.1f}" for name in names)]
        for cell in by_privilege(cells)
    ]


def metric_names(cells: Sequence[Cell]) -> list[str]:
    """Return the metrics that every one of the cells has."""
    return [name for name in cells[0].metrics if all(name in cell.metrics for cell in cells)]


def by_privilege(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells given the annotated boundaries first, otherwise in the order of params."""
    return sorted(cells, key=lambda cell: not cell.given_boundaries)


def claim_line(claim: Claim) -> str:
    """Return one line of the proof as text."""
    signed = f"{claim.value:+.1f}" if claim.interval else f"{claim.value:.1f}"
    text = f"{claim.what}: {signed} {claim.unit}"
    if claim.interval is not None:
        what = "95 % interval " if claim.interval.holds else ""
        text += f", {what}{interval_span(claim.interval)}"
    if claim.needed is None:
        return text
    wanted = f"at least {claim.needed:g}" if claim.needed else "more than 0"
    return f"{text} ({wanted}: {'holds' if claim.holds else 'DOES NOT HOLD'})"


def interval_span(interval: Interval) -> str:
    """Return the two ends of an interval as text; that of few groups is none."""
    if not interval.holds:
        return few_groups(interval)
    return f"{interval.low:+.1f} to {interval.high:+.1f}"


def signed(interval: Interval) -> str:
    """Return a difference and its interval as Markdown, bold where zero is outside."""
    text = f"{interval.mean:+.1f} ({interval_span(interval)})"
    return f"**{text}**" if interval.excludes_zero else text


def few_groups(interval: Interval) -> str:
    return f"{interval.groups} groups: no interval"


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, DIGITS) + 0.0 for name, value in values.items()}


def _interval_json(interval: Interval) -> dict[str, Any]:
    return {**_rounded(asdict(interval)), "excludes_zero": interval.excludes_zero}


def _cell_json(cell: Cell) -> dict[str, Any]:
    intervals = {name: _rounded(asdict(value)) for name, value in cell.intervals.items()}
    return {
        "metrics": _rounded(cell.metrics),
        "intervals": intervals,
        "paper": _rounded(cell.paper),
        "streamed": {name: _streamed_json(value) for name, value in cell.streamed.items()},
        "selection": cell.selection,
        "labels": dict(cell.labels),
        "sight": dict(cell.sight),
        "runs": cell.runs,
        "given_boundaries": cell.given_boundaries,
        "provenance": cell.provenance.model_dump(mode="json"),
        "warnings": list(cell.warnings),
    }


def _streamed_json(streamed: Streamed) -> dict[str, Any]:
    intervals = {name: _rounded(asdict(value)) for name, value in streamed.intervals.items()}
    return {**streamed.seen, "metrics": _rounded(streamed.metrics), "intervals": intervals}


def _difference_json(difference: Difference) -> dict[str, Any]:
    pair = {"probe": difference.probe, "first": difference.first, "second": difference.second}
    pair["protocol"] = difference.protocol
    return pair | {name: _interval_json(value) for name, value in difference.intervals.items()}


def _claim_json(claim: Claim) -> dict[str, Any]:
    values = {"what": claim.what, "value": round(claim.value, DIGITS), "unit": claim.unit}
    values |= {"needed": claim.needed, "holds": claim.holds}
    interval = None if claim.interval is None else _interval_json(claim.interval)
    return values | {"interval": interval}
