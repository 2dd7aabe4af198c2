"""Pictures of takes for `dvc plots diff`, tables for `dvc plots`, and the looks of classes.

Drawn with matplotlib's defaults, whatever the user's own style is, and saved without a software
or time stamp: the same numbers give the same bytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pjepa.core.runs import Spans, label_spans
from pjepa.core.tables import Classes
from pjepa.report.analyses import Profile
from pjepa.report.gains import ChosenTake, take_accuracy
from pjepa.report.results import Cell, Predictions, Results
from pjepa.storage.writing import atomic_file, write_csv

DPI = 100


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


# A look for every class: hue and pattern, distinct for over a hundred classes.

HUES = (
    "#88ccee",
    "#cc6677",
    "#ddcc77",
    "#117733",
    "#aa4499",
    "#44aa99",
    "#882255",
    "#999933",
    "#332288",
)
PATTERNS = ("/", ".", "-", "\\", "|", "x")  # matplotlib's hatches
INKS = ("#1a1a1a", "#ffffff")
STYLES = tuple((pattern, ink) for ink in INKS for pattern in PATTERNS)
BACKGROUND, UNKNOWN = "#d9d9d9", "#ffffff"


@dataclass(frozen=True)
class ClassLook:
    """The colour of a class, the pattern on it, and the pattern's ink."""

    color: str
    pattern: str = ""  # plain
    ink: str = INKS[0]


def class_look(label: int, background: int | None) -> ClassLook:
    """Return the look of a class id: the same in every picture of a data set."""
    if label < 0:
        return ClassLook(UNKNOWN)
    if label == background:
        return ClassLook(BACKGROUND)
    number = label - (background is not None and label > background)
    rank, hue = divmod(number, len(HUES))
    return ClassLook(HUES[hue], *(STYLES[(rank - 1) % len(STYLES)] if rank else ()))


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


def probe_tracks(
    results: Results, predictions: Mapping[tuple[str, str], Predictions]
) -> list[Track]:
    """Return the strips of every probe in turn: raw, P-JEPA, history, as far as they are there."""
    several, tracks = len(results.probes) > 1, []
    for probe in results.probes:
        for name in STRIPS:
            cell = results.cell(probe, name)
            if cell is not None:
                title = f"{name}, {probe}" if several else name
                tracks.append(Track(title, cell, predictions[probe, name]))
    return tracks


def draw_timelines(
    chosen: Sequence[ChosenTake], tracks: Sequence[Track], classes: Classes, folder: Path
) -> dict[str, str]:
    """Draw the chosen takes and return their captions by file name.

    File names say the rank, not the take, so that `dvc plots diff` finds the same picture in two
    revisions.
    """
    captions = {}
    for choice in chosen:
        name, take = f"{choice.name}.png", choice.gain.take_id
        title = " ".join(take.split())
        captions[name] = f"{title}, {choice.why} ({choice.gain.points:+.1f} points of acc)"
        first = tracks[0].predictions[take]
        strips = [Strip("ground truth", first.labels)]
        for track in tracks:
            accuracy = take_accuracy(track.cell, take, variant=0)
            predicted = track.predictions[take].predicted
            strips.append(Strip(f"{track.name}  {accuracy:.0f} %", predicted))
        draw_strips(strips, first.times, first.step_s, classes, captions[name], folder / name)
    return captions


@dataclass(frozen=True)
class Strip:
    """One row of a picture: a class per token."""

    title: str
    labels: np.ndarray


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
        figure.legend(
            handles=[_patch(label, classes) for label in labels],
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


# Tables behind `dvc plots`: progress and confusion.

MOST_ROWS = 20_000  # of the confusion table; DVC counts its rows in the browser


def write_plots(
    folder: Path,
    profiles: Mapping[str, Profile],
    predictions: Predictions | None,
    classes: Classes,
) -> None:
    """Write progress.csv and confusion.csv; what there is no data for has no rows."""
    means = np.array([profile.mean for profile in profiles.values()])  # [representations, bins]
    progress = [
        [round((index + 0.5) / means.shape[-1], 4), *np.round(column, 4).tolist()]
        for index, column in enumerate(means.T)
    ]
    write_csv(folder / "progress.csv", ["relative_time", *profiles], progress)
    rows = [] if predictions is None else confusion_rows(predictions, classes)
    write_csv(folder / "confusion.csv", ["actual", "predicted"], rows)


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
