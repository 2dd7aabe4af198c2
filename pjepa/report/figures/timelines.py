"""Pictures of a few takes: the truth, and the predictions of probes on each representation.

A strip for the truth and one for every probe on raw, P-JEPA and `history`. Classes are told apart
by hue, pattern and the number written into the segment; the legend lists only those that occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pjepa.core.runs import Spans, label_spans
from pjepa.core.tables import Classes
from pjepa.report.figures.figures import house_style, save_png
from pjepa.report.figures.palette import class_look
from pjepa.report.numbers.gains import ChosenTake, chosen_takes, take_accuracy, take_gains
from pjepa.report.numbers.predictions import Predictions
from pjepa.report.numbers.results import Cell

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
