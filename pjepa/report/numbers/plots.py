"""Tables behind `dvc plots`: progress and confusion."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pjepa.core.files import atomic_file
from pjepa.core.tables import Classes
from pjepa.report.numbers.predictions import Predictions
from pjepa.report.numbers.trajectories import Profile

MOST_ROWS = 20_000  # of the confusion table; DVC counts its rows in the browser


def write_plots(
    folder: Path,
    profiles: Mapping[str, Profile],
    predictions: Predictions | None,
    classes: Classes,
) -> None:
    """Write progress.csv and confusion.csv; what there is no data for has no rows."""
    write_rows(folder / "progress.csv", ["relative_time", *profiles], progress_rows(profiles))
    rows = [] if predictions is None else confusion_rows(predictions, classes)
    write_rows(folder / "confusion.csv", ["actual", "predicted"], rows)


def progress_rows(profiles: Mapping[str, Profile]) -> list[list[Any]]:
    """Return mean progress per bin of relative time, a column for every representation."""
    if not profiles:
        return []
    bins = len(next(iter(profiles.values())).mean)
    return [
        [round((place + 0.5) / bins, 4), *(round(p.mean[place], 4) for p in profiles.values())]
        for place in range(bins)
    ]


def confusion_rows(predictions: Predictions, classes: Classes) -> list[list[str]]:
    """Return true and predicted class of every known token; every n-th where there are many."""
    pairs = [
        (int(true), int(guess))
        for take in predictions.values()
        for true, guess in zip(take.labels, take.predicted, strict=True)
        if true >= 0
    ]
    every = -(-len(pairs) // MOST_ROWS) or 1
    return [[plot_name(label, classes) for label in pair] for pair in pairs[::every]]


def plot_name(label: int, classes: Classes) -> str:
    """Return a class name that DVC can put into its page as it is: no tag can begin in it."""
    if not 0 <= label < len(classes.names):
        return "unknown"
    name = " ".join(classes.names[label].split())
    number = str(label).zfill(len(str(len(classes.names) - 1)))  # DVC sorts names as text
    return f"{number} {name.replace('<', '‹').replace('>', '›')}"


def write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write one table as CSV."""
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerows([header, *rows])
