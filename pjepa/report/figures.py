"""Pictures of the report: the summary bars and the training curves.

Drawn with matplotlib's defaults, whatever the user's own style is, and saved without a software
or time stamp: the same numbers give the same bytes.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pjepa.core.runs import Spans, label_spans
from pjepa.core.tables import Classes
from pjepa.report.analyses import Maps, Profile, Zoom
from pjepa.report.gains import (
    ChosenTake,
    ClassGain,
    DemoNumbers,
    chosen_takes,
    take_accuracy,
    take_gains,
)
from pjepa.report.palette import PATTERNS, class_look
from pjepa.report.results import REFERENCE, Cell, Predictions
from pjepa.select.curve import LEARNED, ProbeCurve
from pjepa.storage.writing import atomic_file
from pjepa.ui.console import InputError

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


# Pictures of a few takes: the truth, and the predictions of probes on each representation.

STRIPS = ("raw", "pjepa", "history")
LEGEND_COLUMNS = 5
TINY = 0.012  # share of the width below which a number does not fit


@dataclass(frozen=True)
class Track:
    """One row of every timeline: what a cell predicted."""

    name: str
    cell: Cell
    predictions: Predictions


@dataclass(frozen=True)
class Strip:
    """One row of a picture: a class per token."""

    title: str
    labels: np.ndarray


def draw_timelines(
    tracks: Sequence[Track], classes: Classes, count: int, folder: Path
) -> dict[str, str]:
    """Draw `count` takes and return their captions by file name; needs raw and pjepa.

    File names say the rank, not the take, so that `dvc plots diff` finds the same picture in two
    revisions; takes are ranked by the gain of the first probe.
    """
    by_name = {track.cell.representation: track.cell for track in reversed(tracks)}
    if "raw" not in by_name or "pjepa" not in by_name or not count:
        return {}
    captions = {}
    for choice in chosen_takes(take_gains(by_name["raw"], by_name["pjepa"]), count):
        name = f"{choice.name}.png"
        captions[name] = caption(choice)
        draw_timeline(tracks, choice.gain.take_id, classes, captions[name], folder / name)
    return captions


def caption(choice: ChosenTake) -> str:
    """Return the take, why it is shown, and its gain."""
    shown = " ".join(choice.gain.take_id.split())
    return f"{shown}, {choice.why} ({choice.gain.points:+.1f} points of acc)"


def draw_timeline(
    tracks: Sequence[Track], take: str, classes: Classes, title: str, path: Path
) -> None:
    """Draw one picture: a strip for the truth and one for each track."""
    first = tracks[0].predictions[take]
    strips = [Strip("ground truth", first.labels)]
    for track in tracks:
        accuracy = take_accuracy(track.cell, take, variant=0)
        found = track.predictions[take].predicted
        strips.append(Strip(f"{track.name}  {accuracy:.0f} %", found))
    draw_strips(strips, first.times, first.step_s, classes, title, path)


def draw_strips(
    strips: Sequence[Strip],
    times: np.ndarray,
    step_s: float,
    classes: Classes,
    title: str,
    path: Path,
) -> None:
    """Draw strips [T] over times [T], with a legend of the classes that occur."""
    labels = shown_labels(strips, classes.background)
    rows = -(-len(labels) // LEGEND_COLUMNS)
    with house_style():
        figure = Figure(figsize=(11, 0.9 + 0.5 * len(strips) + 0.22 * rows), layout="constrained")
        panels = figure.subplots(len(strips), 1, sharex=True, squeeze=False).ravel()
        for panel, strip in zip(panels, strips, strict=True):
            draw_strip(panel, strip, times, step_s, classes.background)
        panels[0].set_title(title, loc="left", fontsize=10)
        panels[-1].set_xlabel("seconds")
        panels[-1].tick_params(axis="x", length=3, color="#888888")
        handles = [_patch(label, classes) for label in labels]
        figure.legend(
            handles=handles,
            ncols=LEGEND_COLUMNS,
            loc="outside lower left",
            frameon=False,
            fontsize=9,
        )
        save_png(figure, path)


def shown_labels(strips: Sequence[Strip], background: int | None) -> list[int]:
    """Return the classes of a picture: those done first, in order, then those only guessed."""
    seen = dict.fromkeys(int(label) for strip in strips for label in strip.labels)
    last = [label for label in seen if label < 0 or label == background]
    return [label for label in seen if label not in last] + last


def draw_strip(
    axes: Axes, strip: Strip, times: np.ndarray, step: float, background: int | None
) -> None:
    """Fill one row with a bar per span of equal label."""
    spans = label_spans(strip.labels, times, step)
    for label in dict.fromkeys(spans.labels.tolist()):
        mine = spans.labels == label
        look = class_look(int(label), background)
        bars = list(zip(spans.begin_s[mine], (spans.until_s - spans.begin_s)[mine], strict=True))
        axes.broken_barh(
            bars,
            (0, 1),
            facecolors=look.color,
            hatch=look.pattern * 2 or None,
            edgecolor=look.ink if look.pattern else "none",
            linewidth=0,
        )
    axes.set_xlim(times[0], times[-1] + step)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_ylabel(strip.title, rotation=0, ha="right", va="center")
    axes.tick_params(axis="x", length=0)
    _write_numbers(axes, spans, background)


def _write_numbers(axes: Axes, spans: Spans, background: int | None) -> None:
    """Write the class number into every segment that is wide enough."""
    low, high = axes.get_xlim()
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    for label, begin, until in zip(spans.labels, spans.begin_s, spans.until_s, strict=True):
        wide = (until - begin) / (high - low) > TINY * len(str(label))
        if wide and label >= 0 and label != background:
            middle = (begin + until) / 2
            axes.text(middle, 0.48, str(label), ha="center", va="center", fontsize=7, bbox=box)


def _patch(label: int, classes: Classes) -> Patch:
    look = class_look(label, classes.background)
    edge = look.ink if look.pattern else "#bbbbbb"
    hatch, name = look.pattern * 2 or None, classes.numbered(label)
    return Patch(facecolor=look.color, edgecolor=edge, hatch=hatch, label=name, linewidth=0.3)


def probe_tracks(
    cells: Mapping[str, Sequence[Cell]], predictions: Mapping[tuple[str, str], Predictions]
) -> list[Track]:
    """Return the strips of every probe in turn: raw, P-JEPA, history, as far as they are there."""
    tracks = []
    for probe, mine in cells.items():
        by_name = {cell.representation: cell for cell in mine}
        for name in STRIPS:
            if name in by_name:
                title = f"{name}, {probe}" if len(cells) > 1 else name
                tracks.append(Track(title, by_name[name], predictions[probe, name]))
    return tracks


# Pictures of the analyses: progress profile, maps, the confusable pair, classes, confusion.

MARKERS = dict(zip(PATTERNS, "os^Dv+x", strict=True))  # a shape for every pattern of the palette
MOST_BARS = 40


def draw_progress(profiles: Mapping[str, Profile], path: Path) -> None:
    """Draw mean progress over relative time with quartiles over takes; dotted: even progress."""
    with house_style():
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#999999", linestyle=":", linewidth=1)
        for name in (n for n in LINES if n in profiles):
            profile = profiles[name]
            x = (np.arange(len(profile.mean)) + 0.5) / len(profile.mean)
            axes.plot(x, profile.mean, color=LINES[name], linewidth=2, label=name)
            if name in ("raw", "pjepa"):
                axes.fill_between(x, profile.low, profile.high, color=LINES[name], alpha=0.15)
        axes.set_xlabel("relative time")
        axes.set_ylabel("progress along the take's own start-end line")
        axes.legend(frameon=False)
        save_png(figure, path)


def draw_maps(maps: Maps, background: int | None, path: Path) -> None:
    """Draw every representation's map twice: coloured by relative time and by class."""
    names = list(maps.points)
    with house_style():
        figure = Figure(figsize=(4.2 * len(names), 8.2), layout="constrained")
        panels = figure.subplots(2, len(names), squeeze=False)
        for column, name in enumerate(names):
            x, y = maps.points[name].T
            shown = panels[0, column].scatter(x, y, c=maps.times, s=9, cmap="viridis")
            draw_classes(panels[1, column], maps.points[name], maps.labels, background)
            panels[0, column].set_title(f"{name}, by relative time", fontsize=10, loc="left")
            panels[1, column].set_title(f"{name}, by class", fontsize=10, loc="left")
        for panel in panels.flat:
            panel.set(xticks=[], yticks=[])
        figure.colorbar(shown, ax=panels[0], shrink=0.6, label="relative time")
        save_png(figure, path)


def draw_classes(
    axes: Axes, points: np.ndarray, labels: np.ndarray, background: int | None
) -> None:
    """Draw points with the hue of their class and a shape for its pattern."""
    for label in np.unique(labels).tolist():
        look, mine = class_look(label, background), labels == label
        marker = MARKERS[look.pattern]
        x, y = points[mine].T
        axes.scatter(x, y, s=11, color=look.color, marker=marker, linewidths=1)


def draw_pair(zoom: Zoom, tracks: Sequence[Track], classes: Classes, path: Path) -> None:
    """Draw maps of the two classes above the strips of one take, other classes pale."""
    wanted = (zoom.pair.first, zoom.pair.second)
    colors = dict(zip(wanted, ("#2f6fb0", "#c2571a"), strict=True))
    names = list(zoom.points)
    with house_style():
        figure = Figure(figsize=(9, 4.4 + 0.5 * (len(tracks) + 1)), layout="constrained")
        heights = [3.6, 0.5 * (len(tracks) + 1) + 0.6]
        above, below = figure.subfigures(2, 1, height_ratios=heights)  # type: ignore[misc]
        panels = above.subplots(1, len(names), squeeze=False)[0]
        for panel, name in zip(panels, names, strict=True):
            for label in wanted:
                mine = zoom.labels == label
                text = classes.numbered(label)
                x, y = zoom.points[name][mine].T
                panel.scatter(x, y, s=9, color=colors[label], label=text)
            panel.set(xticks=[], yticks=[])
            panel.set_title(f"{name} (silhouette {zoom.silhouette[name]:.2f})", loc="left")
        handles, texts = panels[0].get_legend_handles_labels()
        above.legend(handles, texts, loc="outside lower center", ncols=2, frameon=False)
        first = tracks[0].predictions[zoom.take]
        strips = [Strip("ground truth", first.labels)]
        strips += [Strip(t.name, t.predictions[zoom.take].predicted) for t in tracks]
        rows = below.subplots(len(strips), 1, sharex=True, squeeze=False).ravel()
        for row, strip in zip(rows, strips, strict=True):
            _pair_strip(row, strip, first.times, first.step_s, colors, classes.background)
        rows[0].set_title(" ".join(zoom.take.split()), loc="left", fontsize=10)
        rows[-1].set_xlabel("seconds")
        save_png(figure, path)


def _pair_strip(
    axes: Axes,
    strip: Strip,
    times: np.ndarray,
    step: float,
    colors: Mapping[int, str],
    background: int | None,
) -> None:
    """Draw a strip in which only the two classes keep a colour."""
    draw_strip(axes, strip, times, step, background)
    for bars, label in zip(axes.collections, dict.fromkeys(strip.labels.tolist()), strict=True):
        bars.set(facecolor=colors.get(label, "#e3e3e3"), hatch=None, edgecolor="none")
    for text in list(axes.texts):
        if int(text.get_text()) not in colors:
            text.remove()


def draw_confusion(counts: Mapping[str, np.ndarray], path: Path) -> None:
    """Draw confusion matrices side by side, every row the shares of one true class."""
    with house_style():
        figure = Figure(figsize=(4.6 * len(counts), 4.6), layout="constrained")
        panels = figure.subplots(1, len(counts), squeeze=False)[0]
        for panel, (name, matrix) in zip(panels, counts.items(), strict=True):
            shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
            shown = panel.imshow(shares, vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
            panel.set_title(name, loc="left", fontsize=10)
            panel.set(xlabel="predicted class", ylabel="true class")
        figure.colorbar(shown, ax=panels, shrink=0.7, label="share of the true class")
        save_png(figure, path)


def draw_class_gains(gains: Sequence[ClassGain], classes: Classes, path: Path) -> None:
    """Draw the difference per class with intervals; long lists omit the middle."""
    shown = list(gains)
    if len(shown) > MOST_BARS:
        shown = [*shown[: MOST_BARS // 2], *shown[-MOST_BARS // 2 :]]
    with house_style():
        figure = Figure(figsize=(7.5, 0.9 + 0.22 * len(shown)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(shown):
            color = "#88bb99" if row.gain.mean >= 0 else "#d39ca6"  # pale: the interval shows
            axes.barh(-place, row.gain.mean, color=color, height=0.7)
            if row.gain.holds:
                ends = [row.gain.low, row.gain.high]
                axes.plot(ends, [-place, -place], "|-", color="#222222", linewidth=1.4)
        names = [classes.numbered(row.label)[:40] for row in shown]
        axes.set_yticks([-place for place in range(len(shown))], names, fontsize=8)
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.set_xlabel("points of class accuracy, pjepa - raw, 95 % intervals")
        save_png(figure, path)


# Tables behind `dvc plots`: progress and confusion.

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
