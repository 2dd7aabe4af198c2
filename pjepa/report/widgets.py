"""The data of the page's widgets: small JSON values, names as they are.

Numbers have four digits; the page shows one, rounded from these as in its tables.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pjepa.core.runs import Spans
from pjepa.core.tables import Classes
from pjepa.metrics.bootstrap import Interval
from pjepa.metrics.lengths import LengthBin
from pjepa.report.analyses import Maps, PairView
from pjepa.report.figures import Track, class_look
from pjepa.report.frames import COLUMNS, HEIGHT, Sheet
from pjepa.report.gains import ChosenTake, ClassGain, DemoNumbers, Gain, take_accuracy
from pjepa.report.results import REFERENCE, Cell
from pjepa.report.tables import rounded
from pjepa.select.curve import LEARNED, ProbeCurve
from pjepa.ui.console import InputError

MAP_SCALE = 1000  # maps are drawn on a grid of this size: finer than a screen


def class_data(classes: Classes) -> dict[str, Any]:
    """Return names and looks of all classes; the look of the unknown class comes last."""
    labels = [*range(len(classes.names)), -1]
    looks = [class_look(label, classes.background) for label in labels]
    return {
        "names": list(classes.names),
        "looks": [[look.color, look.pattern, look.ink] for look in looks],
        "background": classes.background,
    }


def score_data(cells: Sequence[Cell], demo: DemoNumbers | None) -> dict[str, Any]:
    """Return `acc` of one probe's cells with intervals, and the demo's ceilings."""
    lines = [] if demo is None else [["appearance", demo.appearance], ["history", demo.history]]
    rows = [
        [c.representation, cell_kind(c), *_ends(c.metrics["acc"], c.intervals["acc"])]
        for c in cells
    ]
    return rounded({"rows": rows, "lines": lines})


def cell_kind(cell: Cell) -> str:
    """Return how a representation is named in the key of a chart."""
    if cell.representation == REFERENCE:
        return "raw"
    if cell.representation in ("pjepa", "pjepa_segment"):
        return "P-JEPA"
    given = "with" if cell.given_boundaries else "without"
    return f"control {given} annotated boundaries"


def take_data(choice: ChosenTake, tracks: Sequence[Track]) -> dict[str, Any]:
    """Return one take of the timelines: truth first, then every track."""
    take = choice.gain.take_id
    first = tracks[0].predictions[take]
    truth = {"name": "ground truth", "runs": span_data(first.spans(first.labels), None)}
    rows: list[dict[str, Any]] = [truth]
    for track in tracks:
        prediction = track.predictions[take]
        accuracy = round(take_accuracy(track.cell, take, variant=0), 1)
        runs = span_data(prediction.spans(prediction.predicted), prediction.scores)
        rows.append({"name": track.name, "acc": accuracy, "runs": runs})
    return {
        "id": take,
        "group": tracks[0].cell.statistics.groups[take],
        "why": choice.why,
        "gain": round(choice.gain.points, 1),
        "start": round(float(first.times[0]), 2),
        "end": round(first.end_s, 2),
        "tracks": rows,
    }


def span_data(spans: Spans, scores: np.ndarray | None) -> list[int]:
    """Return spans as flat integers: class, gap before in 1/100 s, length, mean score in %."""
    begin, until = (np.round(edge * 100).astype(int) for edge in (spans.begin_s, spans.until_s))
    gaps = begin - np.concatenate([begin[:1], until[:-1]])
    percent = np.full(len(begin), -1)
    if scores is not None and len(begin):
        means = np.add.reduceat(scores, spans.first) / (spans.end - spans.first)
        percent = np.round(100 * means).astype(int)
    return list(np.stack([spans.labels, gaps, until - begin, percent], 1).ravel().tolist())


def sheet_data(sheet: Sheet) -> dict[str, Any]:
    """Return the pictures of a take, inside the page."""
    return {
        "times": list(sheet.times),
        "size": [sheet.width, HEIGHT],
        "columns": COLUMNS,
        "src": "data:image/jpeg;base64," + base64.b64encode(sheet.jpeg).decode(),
    }


def map_data(view: Maps | PairView) -> dict[str, Any]:
    """Return maps side by side; those of whole takes show time and paths as well."""
    values = {
        "panels": [{"name": name, "xy": _scaled(xy)} for name, xy in view.points.items()],
        "labels": view.labels.tolist(),
    }
    if isinstance(view, PairView):
        return values | {"times": None, "takes": [], "take": None}
    times = np.round(view.times, 3).tolist()
    return values | {"times": times, "takes": view.takes, "take": view.take.tolist()}


def confusion_data(counts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the matrices as [truth, prediction, tokens, ...] of the cells that are not 0."""
    return {
        "panels": [
            {
                "name": name,
                "cells": np.stack([*np.nonzero(m), m[np.nonzero(m)]], 1).ravel().tolist(),
            }
            for name, m in counts.items()  # m [truth, prediction]
        ]
    }


def gain_data(gains: Sequence[ClassGain | Gain], names: Sequence[str]) -> dict[str, Any]:
    """Return the bars of the difference per class, or per take."""
    rows: list[dict[str, Any]] = []
    for gain in gains:
        rows.append({"values": [gain.before, gain.after]})
        if isinstance(gain, ClassGain):
            ends = _ends(gain.gain.mean, gain.gain)
            rows[-1] |= {"label": gain.label, "note": f"{gain.frames:.0f} tokens", "gain": ends}
        else:
            rows[-1] |= {"name": gain.take_id, "gain": [gain.points]}
    return rounded({"names": names, "rows": rows})


def progress_data(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lines of progress over relative time, with quartiles over takes as bands."""
    series = []
    for name, profile in profiles.items():
        x = (np.arange(len(profile["mean"])) + 0.5) / len(profile["mean"])
        band = {"low": profile["low"], "high": profile["high"]}
        series.append({"name": name, "x": x, "y": profile["mean"], **band})
    labels = {"x": "relative time", "y": "progress p"}
    return rounded({"series": series, "labels": labels, "diagonal": True})


def length_data(bins: Mapping[str, Sequence[LengthBin]]) -> dict[str, Any]:
    """Return the lines of F1@50 over bins of segment length."""
    series = [
        {"name": name, "x": list(range(len(rows))), "y": [row.f1 for row in rows]}
        for name, rows in bins.items()
    ]
    names = [length_name(row) for row in next(iter(bins.values()))]
    labels = {"x": "length of the segment", "y": "F1@50, %"}
    return rounded({"series": series, "labels": labels, "categories": names})


def length_name(row: LengthBin) -> str:
    """Return a bin of lengths in words."""
    if row.high_s == float("inf"):
        return f"{row.low_s:g} s or longer" if row.low_s else "any length"
    return f"{row.low_s:g} to {row.high_s:g} s"


CURVES = {  # expected names and what they are, in the order of the charts
    "loss": "loss",
    "neighbour_loss": "loss of the neighbour term",
    "target_std": "std of the targets",
    "effective_rank": "effective rank of the targets",
    "lr": "learning rate",
}


@dataclass(frozen=True)
class Curve:
    """One logged number over the steps."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]


def read_curves(folder: Path) -> list[Curve]:
    """Return the curves dvclive wrote, the expected ones first.

    Files that are not curves are skipped.
    """
    root = folder / "plots" / "metrics"
    files = {
        path.relative_to(root).with_suffix("").as_posix(): path
        for path in sorted(root.rglob("*.tsv"))
    }
    curves = []
    for name in [name for name in dict.fromkeys([*CURVES, *files]) if name in files]:
        try:
            frame = pd.read_csv(files[name], sep="\t")
        except ValueError:  # empty, or not text
            raise InputError(f"{files[name]}: not a curve; run `dvc repro pretrain`") from None
        column = name.rpartition("/")[2]
        if {"step", column} <= set(frame.columns):
            numbers = frame[["step", column]].apply(pd.to_numeric, errors="coerce").dropna()
            if len(numbers):
                curves.append(Curve(name, numbers["step"].tolist(), numbers[column].tolist()))
    return curves


def curve_data(curves: Mapping[str, Sequence[Curve]]) -> list[dict[str, Any]]:
    """Return one small chart per training curve; experiments share a chart."""
    charts: dict[str, dict[str, Any]] = {}
    for owner, mine in curves.items():
        for curve in mine:
            title = CURVES.get(curve.name, curve.name)
            empty = {"series": [], "labels": {"x": "epoch", "y": ""}, "title": title}
            chart = charts.setdefault(curve.name, empty)
            y = [float(f"{value:.5g}") for value in curve.values]
            chart["series"].append({"name": owner, "x": list(curve.steps), "y": y})
    return list(charts.values())


def probe_curve_data(curves: Mapping[str, ProbeCurve]) -> dict[str, Any]:
    """Return lines of the probe over epochs, and its references as flat lines.

    Runs by their names.
    """
    series = []
    for owner, curve in curves.items():
        epochs = list(curve.scores)
        rows = {LEARNED: list(curve.scores.values())}
        rows |= {name: [value] * len(epochs) for name, value in curve.references.items()}
        for name, values in rows.items():
            title = f"{name}, {owner}" if owner else name
            flat = name in curve.references
            series.append({"name": title, "x": epochs, "y": values, "flat": flat})
    labels = {"x": "epoch", "y": "accuracy on the hold-out, %"}
    return rounded({"series": series, "labels": labels, "zero": True})


def _ends(value: float, interval: Interval) -> list[float]:
    """Return a value and the ends of its line; of few groups there are none."""
    return [value, interval.low, interval.high] if interval.holds else [value]


def _scaled(points: np.ndarray) -> list[int]:
    """Return the points on the grid, both axes with one scale."""
    low, size = points.min(0), max(float(np.ptp(points, axis=0).max()), 1e-9)
    shift = (1 - np.ptp(points, axis=0) / size) / 2
    grid = np.round(((points - low) / size + shift) * MAP_SCALE).astype(int)
    return list(grid.ravel().tolist())
