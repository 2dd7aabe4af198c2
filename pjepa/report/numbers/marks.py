"""Marks beside numbers: the split choices were made on, label budget, labels used upstream."""

from __future__ import annotations

from collections.abc import Sequence

from pjepa.report.numbers.results import Cell

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
