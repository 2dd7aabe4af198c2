"""Pictures of the report: the summary bars and the training curves.

Drawn with matplotlib's defaults, whatever the user's own style is, and saved without a software
or time stamp: the same numbers give the same bytes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pjepa.core.files import atomic_file
from pjepa.curve.file import LEARNED, ProbeCurve
from pjepa.report.numbers.proof import DemoNumbers
from pjepa.report.numbers.results import REFERENCE, Cell
from pjepa.ui.errors import InputError

DPI = 100
ENCODED = ("pjepa", "pjepa_segment")
KINDS = {
    "raw": "#8c8c8c",
    "control without annotated boundaries": "#9ecae1",
    "control with annotated boundaries": "#4a7fb5",
    "P-JEPA": "#e07b39",
}
# One colour for a representation in every chart of lines, as on the page.
LINES = {"raw": "#6b7280", "pjepa": "#c2571a", "history": "#2f6fb0", "random": "#882255"}
CURVES = {  # expected names and what they are, in the order of the panels
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


@contextmanager
def house_style() -> Iterator[None]:
    """Apply matplotlib's defaults and our settings; restore the user's afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc("font", size=10)
        matplotlib.rc("text", parse_math=False)  # names are data: a $ is a $
        matplotlib.rc("axes", edgecolor="#888888")
        matplotlib.rc("hatch", linewidth=0.6)
        matplotlib.rc("axes.spines", top=False, right=False)
        yield


def save_png(figure: Figure, path: Path, made_by: str | None = None) -> None:
    """Write a PNG without metadata but its maker, whole or not at all.

    Letters that the font lacks become boxes, without a warning for each.
    """
    with atomic_file(path) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        metadata = {"Software": made_by}
        figure.savefig(partial, format="png", dpi=DPI, facecolor="white", metadata=metadata)


def draw_summary(cells: Sequence[Cell], demo: DemoNumbers | None, path: Path) -> None:
    """Draw bars of `acc` with 95 % intervals, and the demo's two ceilings as lines."""
    ordered = sorted(cells, key=lambda cell: list(KINDS).index(cell_kind(cell)))
    with house_style():
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        axes = figure.subplots()
        for place, cell in enumerate(ordered):
            _bar(axes, place, cell)
        if demo is not None:
            _ceilings(axes, demo)
        axes.set_xticks(range(len(ordered)), [_tick(cell) for cell in ordered])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.6, len(ordered) - 0.4)
        axes.set_ylim(0, 108)
        axes.set_ylabel("frame accuracy without background, %")
        present = {cell_kind(cell) for cell in ordered}
        handles = [Patch(color=color, label=k) for k, color in KINDS.items() if k in present]
        figure.legend(handles=handles, ncols=4, loc="outside lower center", frameon=False)
        save_png(figure, path)


def cell_kind(cell: Cell) -> str:
    """Return which of `KINDS` a bar is."""
    if cell.representation == REFERENCE:
        return "raw"
    if cell.representation in ENCODED:
        return "P-JEPA"
    given = "with" if cell.given_boundaries else "without"
    return f"control {given} annotated boundaries"


def read_curves(folder: Path) -> list[Curve]:
    """Return the curves dvclive wrote, the expected ones first.

    Files that are not curves are skipped.
    """
    root = folder / "plots" / "metrics"
    names = {path.relative_to(root).with_suffix("").as_posix(): path for path in _tables(root)}
    known = [name for name in CURVES if name in names]
    curves = []
    for name in [*known, *(name for name in names if name not in CURVES)]:
        try:
            frame = pd.read_csv(names[name], sep="\t")
        except ValueError:  # empty, or not text
            raise InputError(f"{names[name]}: not a curve; run `dvc repro pretrain`") from None
        column = name.rpartition("/")[2]
        if {"step", column} <= set(frame.columns):
            part = frame[["step", column]].apply(pd.to_numeric, errors="coerce").dropna()
            if len(part):
                curves.append(Curve(name, part["step"].tolist(), part[column].tolist()))
    return curves


def draw_curves(curves: Sequence[Curve], path: Path) -> None:
    """Draw one panel per curve over the training steps."""
    columns = min(2, len(curves))
    rows = math.ceil(len(curves) / columns)
    with house_style():
        figure = Figure(figsize=(4.5 * columns, 2.4 * rows + 0.3), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel, curve in zip(panels.flat, curves, strict=False):
            marker = "o" if len(curve.steps) == 1 else ""
            panel.plot(
                curve.steps, curve.values, color=LINES["pjepa"], linewidth=1.4, marker=marker
            )
            panel.set_title(CURVES.get(curve.name, curve.name), fontsize=10, loc="left")
            panel.grid(color="#eeeeee")
            panel.set_axisbelow(True)
        for panel in panels.flat[len(curves) :]:
            panel.set_visible(False)
        figure.supxlabel("epoch", fontsize=10)
        save_png(figure, path)


def draw_probe_curve(curve: ProbeCurve, path: Path) -> None:
    """Draw the linear probe over epochs, with its references as flat lines."""
    with house_style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        epochs = list(curve.scores)
        scores = list(curve.scores.values())
        axes.plot(epochs, scores, marker="o", color=LINES["pjepa"], label=LEARNED)
        for name, value in curve.references.items():
            axes.axhline(value, color=LINES[name], linestyle="--", label=name)
        axes.set_ylim(0)
        axes.set_xlabel("epoch of pretraining")
        axes.set_ylabel("accuracy on held-out train groups, %")
        axes.legend(frameon=False)
        save_png(figure, path)


def _tick(cell: Cell) -> str:
    return cell.representation.replace("_", "_\n")


def _bar(axes: Axes, place: int, cell: Cell) -> None:
    value, interval = cell.metrics["acc"], cell.intervals["acc"]
    axes.bar(place, value, width=0.72, color=KINDS[cell_kind(cell)])
    height = value + 1.2
    if interval.holds:
        ends = [[max(value - interval.low, 0.0)], [max(interval.high - value, 0.0)]]
        axes.errorbar(place, value, yerr=ends, color="#333333", capsize=3, linewidth=1.2)
        height = max(value, interval.high) + 1.2
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    axes.text(place, height, f"{value:.1f}", ha="center", va="bottom", bbox=box, zorder=4)


def _ceilings(axes: Axes, demo: DemoNumbers) -> None:
    """Draw dashed lines named in the right margin; names move apart where lines are close."""
    apart = abs(demo.history - demo.appearance) > 14
    for value, text, side in (
        (demo.history, "ceiling from\nthe history", "bottom"),
        (demo.appearance, "ceiling from\nappearance", "top"),
    ):
        axes.axhline(value, color="#444444", linewidth=1, linestyle=(0, (5, 4)), zorder=0)
        axes.annotate(
            f"{text}: {value:.1f}",
            (1.01, value),
            xycoords=("axes fraction", "data"),
            va="center" if apart else side,
            fontsize=9,
            color="#444444",
        )


def _tables(root: Path) -> list[Path]:
    return sorted(root.rglob("*.tsv"))
