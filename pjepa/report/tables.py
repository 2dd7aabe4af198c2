"""The results as values: metrics.json (short), report.json (everything), lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from pjepa.metrics.bootstrap import Interval
from pjepa.report.gains import Claim, DemoNumbers, proof_claims
from pjepa.report.results import Cell, Results

# Marks beside numbers: the split choices were made on, label budget, labels used upstream.

LABELLED = "†"
LEGEND = f"{LABELLED}: labels went into the features (to train them, or to choose among them)"


def marked_name(cell: Cell) -> str:
    """Return the representation, with a mark if labels went into it."""
    return f"{cell.representation}{LABELLED if cell.used_labels else ''}"


def with_mark(text: str, cells: Sequence[Cell]) -> str:
    """Return a table's title or corner and, in brackets, what sets its cells apart.

    That is what differs from the default: choices on held-out train groups, all labels.
    """
    selections = sorted({cell.selection for cell in cells} - {"holdout"})
    marks = [f"chosen on {name}" if name != "last" else "last epoch" for name in selections]
    budgets = sorted({(c.labels["label_fraction"], c.labels["variant"]) for c in cells})
    marks += [
        f"{100 * part:g} % of train labels, {kind} variant" for part, kind in budgets if part < 1
    ]
    return f"{text} ({'; '.join(marks)})" if marks else text


def by_privilege(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells given the annotated boundaries first, otherwise in the order of params."""
    return sorted(cells, key=lambda cell: not cell.given_boundaries)


def metric_names(cells: Sequence[Cell]) -> list[str]:
    """Return the metrics that every one of the cells has."""
    return [name for name in cells[0].metrics if all(name in cell.metrics for cell in cells)]


# An interval as text, everywhere.

POINTS = "+.1f"  # of a difference


def span(interval: Interval, digits: str = POINTS) -> str:
    """Return the two ends of an interval as text; that of few groups is none."""
    if not interval.holds:
        return f"{interval.groups} groups: no interval"
    return f"{interval.low:{digits}} to {interval.high:{digits}}"


def with_span(interval: Interval | None, digits: str = POINTS) -> str:
    """Return a value and its interval, such as `+3.1 (+1.0 to +5.2)`."""
    if interval is None:
        return "undefined"
    return f"{interval.mean:{digits}} ({span(interval, digits)})"


def bold_if_sure(difference: Interval) -> str:
    """Return a difference and its interval as Markdown, bold where zero is outside."""
    text = with_span(difference)
    return f"**{text}**" if difference.excludes_zero else text


def claim_line(claim: Claim) -> str:
    """Return one line of the proof as text."""
    value = f"{claim.value:+.1f}" if claim.interval else f"{claim.value:.1f}"
    text = f"{claim.what}: {value} {claim.unit}"
    if claim.interval is not None:
        text += f", {'95 % interval ' * claim.interval.holds}{span(claim.interval)}"
    if claim.needed is None:
        return text
    needed = f"at least {claim.needed:g}" if claim.needed else "more than 0"
    return f"{text} ({needed}: {'holds' if claim.holds else 'DOES NOT HOLD'})"


def headline_rows(results: Results, probe: str) -> list[list[str]]:
    """Return representation and headline metrics with one decimal, equal privileges together."""
    cells = results.of_probe(probe)
    names = metric_names(cells)
    return [
        [marked_name(cell), *(f"{cell.metrics[name]:.1f}" for name in names)]
        for cell in by_privilege(cells)
    ]


# The same numbers as JSON.

DIGITS = 4  # in all files: enough to be rounded once more for print
TRACKED = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")  # the paper's, in metrics.json


def metrics_json(results: Results, demo: DemoNumbers | None) -> dict[str, Any]:
    """Return the Git-tracked numbers: `{probe: {representation: {metric: percent}}, demo: {...}}`.

    Only the paper's metrics, so that `dvc exp show` stays readable; the report has the others.
    """
    values: dict[str, Any] = {
        probe: {
            cell.representation: {name: cell.metrics[name] for name in TRACKED}
            for cell in results.of_probe(probe)
        }
        for probe in results.probes
    }
    if demo is not None:
        closed = demo.gap_closed.get("pjepa")
        values["demo"] = {"appearance": demo.appearance, "history": demo.history}
        values["demo"] |= {} if closed is None else {"gap_closed": closed}
        values["demo"] |= {f"primitive_{name}": value for name, value in demo.primitive.items()}
    return rounded(values)


def report_json(results: Results, demo: DemoNumbers | None) -> dict[str, Any]:
    """Return everything the report knows, intervals included."""
    first = results.cells[0]
    values: dict[str, Any] = {
        "split": first.split,
        "takes": len(first.statistics.groups),
        "groups": len(set(first.statistics.groups.values())),
        "convention": first.convention,
        "cells": {
            probe: {cell.representation: _cell_json(cell) for cell in results.of_probe(probe)}
            for probe in results.probes
        },
        "differences": [
            {"probe": d.probe, "first": d.first, "second": d.second, "protocol": d.protocol}
            | {name: difference_json(interval) for name, interval in d.intervals.items()}
            for d in results.differences
        ],
    }
    if demo is not None:
        values["demo"] = {
            "order": demo.order,
            "ceilings": {"appearance": demo.appearance, "history": demo.history},
            "claims": [_claim_json(claim) for claim in proof_claims(results, demo)],
            "gap_closed": demo.gap_closed,
            "primitive": demo.primitive,
        }
    return rounded(values)


def _cell_json(cell: Cell) -> dict[str, Any]:
    names = ("metrics", "intervals", "paper", "selection", "labels", "sight", "runs", "warnings")
    return {name: getattr(cell, name) for name in (*names, "given_boundaries")} | {
        "provenance": cell.provenance.model_dump(mode="json"),
        "streamed": {
            protocol: {**streamed.seen, "metrics": streamed.metrics}
            | {"intervals": streamed.intervals}
            for protocol, streamed in cell.streamed.items()
        },
    }


def _claim_json(claim: Claim) -> dict[str, Any]:
    interval = None if claim.interval is None else difference_json(claim.interval)
    return {**vars(claim), "holds": claim.holds, "interval": interval}


def difference_json(difference: Interval) -> dict[str, Any]:
    return {**vars(difference), "excludes_zero": difference.excludes_zero}


def rounded(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and arrays as JSON values, all numbers rounded."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value
