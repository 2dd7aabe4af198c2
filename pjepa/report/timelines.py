"""Timelines of a few takes: what was done, and what probes on each representation say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pjepa.metrics.statistics import TakeStatistics
from pjepa.probes.spans import label_spans
from pjepa.report.figures import house_style, save_png
from pjepa.report.results import Cell
from pjepa.takes.manifest import Classes

STRIPS = {"raw": "raw", "pjepa": "P-JEPA", "history": "history"}
BACKGROUND, UNKNOWN = "#e6e6e6", "#ffffff"
PALETTES = ("tab20", "tab20b", "tab20c")  # enough colours for 60 classes in one picture


@dataclass(frozen=True)
class Gain:
    """One take's `acc` on raw and on P-JEPA, in percent."""

    take_id: str
    raw: float
    pjepa: float

    @property
    def points(self) -> float:
        return self.pjepa - self.raw


@dataclass(frozen=True)
class Choice:
    """A take to draw, and why it was chosen."""

    gain: Gain
    why: str


@dataclass(frozen=True)
class Strip:
    """One row of a timeline: a class per token."""

    title: str
    labels: np.ndarray


def take_gains(raw: Cell, pjepa: Cell) -> list[Gain]:
    """Every reported take, largest gain first."""
    gains = [
        Gain(take, _accuracy(raw, take), _accuracy(pjepa, take))
        for take in raw.statistics.variants[0]
    ]
    return sorted(gains, key=lambda gain: (-gain.points, gain.take_id))


def chosen_takes(gains: Sequence[Gain], count: int) -> list[Choice]:
    """Best, median and worst by gain, then takes evenly between."""
    last = len(gains) - 1
    between = np.linspace(0, last, max(count, 2)).round().astype(int).tolist()
    named = {last: "worst", last // 2: "median", 0: "best"}
    wanted = [0, last // 2, last, *between, *range(len(gains))]
    ranks = [rank for rank in dict.fromkeys(wanted) if 0 <= rank <= last]
    return [
        Choice(
            gains[rank], f"{named.get(rank, f'number {rank + 1}')} of {len(gains)} takes by gain"
        )
        for rank in ranks[:count]
    ]


def timeline_name(number: int, take_id: str) -> str:
    """The picture's file name; whatever a take is called, it is one plain name."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", take_id)[:60].strip("_") or "take"
    return f"timeline-{number}-{safe}.png"


def draw_timelines(
    cells: Mapping[str, Cell], classes: Classes, count: int, folder: Path
) -> dict[str, str]:
    """Draws `count` takes and returns their captions by file name; needs raw and pjepa."""
    if "raw" not in cells or "pjepa" not in cells or not count:
        return {}
    tables = {name: _predictions(cells[name]) for name in STRIPS if name in cells}
    captions = {}
    for number, choice in enumerate(chosen_takes(take_gains(cells["raw"], cells["pjepa"]), count)):
        name = timeline_name(number + 1, choice.gain.take_id)
        gain = choice.gain
        shown = " ".join(gain.take_id.split())
        captions[name] = f"{shown}, {choice.why} ({gain.points:+.1f} points of acc)"
        mine = {key: table[table["take_id"] == gain.take_id] for key, table in tables.items()}
        draw_timeline(mine, cells, classes, captions[name], folder / name)
    return captions


def draw_timeline(
    tables: Mapping[str, pd.DataFrame],
    cells: Mapping[str, Cell],
    classes: Classes,
    caption: str,
    path: Path,
) -> None:
    """One picture: a strip for the truth and one for each representation."""
    first = next(iter(tables.values()))
    take, times = str(first["take_id"].iloc[0]), first["time_s"].to_numpy(np.float64)
    strips = [Strip("ground truth", first["label"].to_numpy())]
    for name, table in tables.items():
        title = f"{STRIPS[name]}  {_accuracy(cells[name], take, variant=0):.0f} %"
        strips.append(Strip(title, table["prediction"].to_numpy()))
    draw_strips(strips, times, classes, caption, path)


def draw_strips(
    strips: Sequence[Strip], times: np.ndarray, classes: Classes, caption: str, path: Path
) -> None:
    """One picture of strips [T] over times [T], with a legend of the classes that occur."""
    colors = class_colors(strips, classes.background)
    rows = -(-len(colors) // 5)
    with house_style():
        figure = Figure(figsize=(11, 0.9 + 0.5 * len(strips) + 0.22 * rows), layout="constrained")
        panels = figure.subplots(len(strips), 1, sharex=True, squeeze=False).ravel()
        for panel, strip in zip(panels, strips, strict=True):
            _draw_strip(panel, strip, times, _step(times), colors)
        panels[0].set_title(caption, loc="left", fontsize=10)
        panels[-1].set_xlabel("seconds")
        panels[-1].tick_params(axis="x", length=3, color="#888888")
        handles = [
            Patch(facecolor=color, edgecolor="#bbbbbb", label=_class_name(label, classes))
            for label, color in colors.items()
        ]
        figure.legend(handles=handles, ncols=5, loc="outside lower left", frameon=False, fontsize=9)
        save_png(figure, path)


def class_colors(strips: Sequence[Strip], background: int | None) -> dict[int, str]:
    """A colour for every class that occurs: those done first, in order, then those only guessed."""
    seen = dict.fromkeys(int(label) for strip in strips for label in strip.labels)
    palette = [to_hex(c) for name in PALETTES for c in matplotlib.colormaps[name].colors]  # type: ignore[attr-defined]
    free = [color for place in (0, 1) for color in palette[place:20:2]] + palette[20:]
    fixed = {-1: UNKNOWN} | ({} if background is None else {background: BACKGROUND})
    steps = [label for label in seen if label not in fixed]
    colors = {label: free[index % len(free)] for index, label in enumerate(steps)}
    return colors | {label: fixed[label] for label in seen if label in fixed}


def _draw_strip(
    axes: Axes, strip: Strip, times: np.ndarray, step: float, colors: Mapping[int, str]
) -> None:
    spans = label_spans(strip.labels, times, step)
    faces = [colors[int(label)] for label in spans.labels]
    bars = list(zip(spans.begin_s, spans.until_s - spans.begin_s, strict=True))
    axes.broken_barh(bars, (0, 1), facecolors=faces)
    axes.set_xlim(times[0], times[-1] + step)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_ylabel(strip.title, rotation=0, ha="right", va="center")
    axes.tick_params(axis="x", length=0)


def _step(times: np.ndarray) -> float:
    """How long a token lasts."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0


def _class_name(label: int, classes: Classes) -> str:
    name = "unknown" if label < 0 else " ".join(classes.names[label].split())
    return f" {name}" if name.startswith("_") else name  # matplotlib hides leading underscores


def _predictions(cell: Cell) -> pd.DataFrame:
    return pq.read_table(cell.folder / "predictions.parquet").to_pandas()


def _accuracy(cell: Cell, take: str, variant: int | None = None) -> float:
    """Percent of the take's action tokens that are right, a mean over variants or of one."""
    variants = cell.statistics.variants
    chosen = variants if variant is None else [variants[variant]]
    return float(np.mean([_share(statistics[take]) for statistics in chosen]))


def _share(take: TakeStatistics) -> float:
    return 100.0 * take.action_correct / max(take.action_frames, 1.0)
