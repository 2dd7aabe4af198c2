"""The analyses as Markdown: tables beside the paper's, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjepa.core.tables import Classes
from pjepa.metrics.bootstrap import Interval
from pjepa.metrics.lengths import LengthBin
from pjepa.report.numbers.analyses import SHOWN
from pjepa.report.numbers.confusable import ENOUGH, ZOOM_POINTS, ClassPair, Zoom
from pjepa.report.numbers.gains import ClassGain
from pjepa.report.numbers.maps import PAPER as PAPER_PATHS
from pjepa.report.numbers.maps import Maps
from pjepa.report.numbers.tables import few_groups, signed
from pjepa.report.numbers.text import escaped, markdown_table
from pjepa.report.numbers.trajectories import PAPER as PAPER_TRAJECTORIES
from pjepa.report.numbers.trajectories import Medians

DIAGNOSTICS = {
    "straightness": "straightness ↑",
    "spearman": "time-progress Spearman ↑",
    "efficiency": "progress efficiency ↑",
    "monotonic": "monotonic fraction ↑",
    "temporal_neighbor": "adjacent temporal NN ↑",
    "adjacent_cosine": "adjacent cosine distance ↓",
    "displacement": "start-end displacement ↑",
}
PATHS = {
    "straightness": "straightness ↑",
    "median_step": "median step ↓",
    "step_90": "90th-percentile step ↓",
    "longest_step": "longest step ↓",
    "length": "path length ↓",
    "displacement": "start-end displacement ↑",
}
OTHER_DATA = "paper, other data (EgoProceL, I3D)"


def trajectory_markdown(trajectories: Mapping[str, Medians], takes: int) -> list[str]:
    """Return the feature-space table, the paper's two rows below, and how to read it."""
    return [
        diagnostics_markdown(trajectories, DIAGNOSTICS, PAPER_TRAJECTORIES),
        f"Medians over {takes} takes with 95 % intervals from a bootstrap over groups. A take is "
        "its segments in order, each its mean feature, L2-normalised; progress is the place along "
        "the take's own line from first to last segment. Progress efficiency is net progress over "
        "total variation, `|p_T - p_1| / sum |p_(t+1) - p_t|`: 1 if the path never turns back. "
        "These numbers describe the features; they are not task performance. Arrows are the "
        "paper's reading.",
    ]


def paths_markdown(maps: Maps) -> list[str]:
    """Return the table of paths on the maps, and what the maps show."""
    shown = f"all {maps.of} takes"
    if len(maps.takes) < maps.of:
        shown = f"{len(maps.takes)} of {maps.of} takes, drawn at random (`report.map_points`)"
    return [
        diagnostics_markdown(maps.paths, PATHS, PAPER_PATHS),
        f"t-SNE of segment features ({len(maps.take)} segments, {shown}). The table measures the "
        "takes' paths on the map. t-SNE keeps neighbourhoods, not distances: it describes the "
        "picture only.",
    ]


def diagnostics_markdown(
    rows: Mapping[str, Medians],
    columns: Mapping[str, str],
    paper: Mapping[str, tuple[float, float]],
) -> str:
    """Return one row per representation with intervals, then the paper's (other data)."""
    table = [
        [f"`{name}`", *(_median(medians[column]) for column in columns)]
        for name, medians in rows.items()
    ]
    table.append([f"*{OTHER_DATA}*", *[""] * len(columns)])
    for place, name in enumerate(("raw", "P-JEPA")):
        table.append([name, *(f"{paper[column][place]:.3f}" for column in columns)])
    return markdown_table(["representation", *columns.values()], table)


def zoom_markdown(zoom: Zoom, classes: Classes, probe: str) -> list[str]:
    """Return which pair was chosen, by which rule, and the pair that lost."""
    first, second = (_name(label, classes) for label in (zoom.pair.first, zoom.pair.second))
    apart = ", ".join(f"{value:.2f} `{name}`" for name, value in zoom.silhouette.items())
    text = (
        f"**{first}** and **{second}**: a {escaped(probe)} probe takes one for the other in "
        f"{zoom.pair.before:.0f} % of their tokens on `raw` and in {zoom.pair.after:.0f} % on "
        f"`pjepa`. "
    )
    if zoom.pair.gain > 0:
        text += (
            "Of all pairs this one fell most: it is chosen to show what context can do, not what "
            "is typical. "
        )
    else:
        text += (
            "**No pair is confused less on `pjepa` than on `raw`**; this is the one `raw` confuses "
            "most. "
        )
    text += _worst_sentence(zoom.worst, classes)
    rule = (
        f"The maps are t-SNE of up to {ZOOM_POINTS} tokens of the two classes (classes with fewer "
        f"than {ENOUGH} tokens are not considered). Mean silhouette of the two in feature space "
        f"(cosine; 1: apart, 0: mixed): {apart}. Below: the take with most of the rarer one."
    )
    return [text, rule]


def _worst_sentence(worst: ClassPair, classes: Classes) -> str:
    if worst.gain >= 0:
        return "No pair is confused more on `pjepa`."
    first, second = (_name(label, classes) for label in (worst.first, worst.second))
    return (
        f"The pair that got worst is {first} and {second}: {worst.before:.0f} % on `raw`, "
        f"{worst.after:.0f} % on `pjepa`."
    )


def class_gains_markdown(gains: Sequence[ClassGain], classes: Classes) -> str:
    """Return every class: share of its frames that are right, before and after."""
    rows = [
        [
            _name(row.label, classes),
            f"{row.frames:.0f}",
            f"{row.before:.1f}",
            f"{row.after:.1f}",
            signed(row.gain),
        ]
        for row in gains
    ]
    columns = [escaped(name) for name in SHOWN]
    return markdown_table(["class", "tokens", *columns, "difference (95 %)"], rows)


def lengths_markdown(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """Return F1@50 by segment length: one row per bin."""
    first = next(iter(bins.values()))
    rows = []
    for place, row in enumerate(first):
        values = [f"{found[place].f1:.1f}" for found in bins.values()]
        rows.append([length_name(row), str(row.true), *values])
    columns = [escaped(name) for name in bins]
    return markdown_table(["segments that last", "true segments", *columns], rows)


def length_name(row: LengthBin) -> str:
    """Return a bin of lengths in words."""
    if row.high_s == float("inf"):
        return f"{row.low_s:g} s or longer" if row.low_s else "any length"
    return f"{row.low_s:g} to {row.high_s:g} s"


def _median(value: Interval | None) -> str:
    if value is None:
        return "undefined"
    span = f"{value.low:.3f}–{value.high:.3f}" if value.holds else few_groups(value)
    return f"{value.mean:.3f} ({span})"


def _name(label: int, classes: Classes) -> str:
    return escaped(classes.numbered(label))
