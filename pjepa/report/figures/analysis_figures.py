"""Pictures of the analyses: progress profile, maps, the confusable pair, classes, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pjepa.core.tables import Classes
from pjepa.report.figures.figures import LINES, house_style, save_png
from pjepa.report.figures.palette import PATTERNS, class_look
from pjepa.report.figures.timelines import Strip, Track, draw_strip
from pjepa.report.numbers.confusable import Zoom
from pjepa.report.numbers.gains import ClassGain
from pjepa.report.numbers.maps import Maps
from pjepa.report.numbers.trajectories import Profile

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
