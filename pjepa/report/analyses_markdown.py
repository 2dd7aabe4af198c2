"""The analyses as Markdown: tables beside the paper's, and what they do and do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjepa.metrics.bootstrap import Interval
from pjepa.metrics.lengths import LengthBin
from pjepa.report.analyses import SHOWN
from pjepa.report.confusable import ENOUGH, ZOOM_POINTS, ClassPair, Zoom
from pjepa.report.gains import ClassGain
from pjepa.report.maps import PAPER as PAPER_PATHS
from pjepa.report.maps import Maps
from pjepa.report.tables import interval_span
from pjepa.report.text import escaped, markdown_table
from pjepa.report.trajectories import PAPER as PAPER_TRAJECTORIES
from pjepa.report.trajectories import Medians
from pjepa.takes.manifest import Classes

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
    """The feature-space table: every representation, and the paper's two rows below."""
    return [
        f"Medians over {takes} takes with 95 % intervals from a bootstrap over groups. A take is "
        "its segments in order, each its mean feature, L2-normalised; progress is the place along "
        "the take's own line from first to last segment. Progress efficiency is net progress over "
        "total variation, `|p_T - p_1| / sum |p_(t+1) - p_t|`: 1 if the path never turns back. "
        "These numbers describe the features; they are not task performance. Arrows are the "
        "paper's reading.",
        diagnostics_markdown(trajectories, DIAGNOSTICS, PAPER_TRAJECTORIES),
    ]


def paths_markdown(maps: Maps) -> list[str]:
    """What the maps show and the table of paths on them."""
    shown = f"all {maps.of} takes"
    if len(maps.takes) < maps.of:
        shown = f"{len(maps.takes)} of {maps.of} takes, drawn at random (`report.map_points`)"
    return [
        f"t-SNE of segment features ({len(maps.take)} segments, {shown}). The table measures the "
        "takes' paths on the map. t-SNE keeps neighbourhoods, not distances: it describes the "
        "picture only.",
        diagnostics_markdown(maps.paths, PATHS, PAPER_PATHS),
    ]


def diagnostics_markdown(
    rows: Mapping[str, Medians],
    columns: Mapping[str, str],
    paper: Mapping[str, tuple[float, float]],
) -> str:
    """One row per representation with its interval, then the paper's, marked as other data."""
    table = [
        [f"`{name}`", *(_median(medians[column]) for column in columns)]
        for name, medians in rows.items()
    ]
    table.append([f"*{OTHER_DATA}*", *[""] * len(columns)])
    for place, name in enumerate(("raw", "P-JEPA")):
        table.append([name, *(f"{paper[column][place]:.3f}" for column in columns)])
    return markdown_table(["representation", *columns.values()], table)


def zoom_markdown(zoom: Zoom, classes: Classes, probe: str) -> list[str]:
    """Which pair was chosen, by which rule, and the pair that lost."""
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


def class_gains_markdown(
    gains: Sequence[ClassGain], classes: Classes, names: tuple[str, str] = SHOWN
) -> str:
    """Every class: share of its frames that are right, before and after."""
    rows = [
        [
            _name(row.label, classes),
            f"{row.frames:.0f}",
            f"{row.before:.1f}",
            f"{row.after:.1f}",
            _signed(row.gain),
        ]
        for row in gains
    ]
    columns = [escaped(name) for name in names]
    return markdown_table(["class", "tokens", *columns, "difference (95 %)"], rows)


def lengths_markdown(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """F1@50 by segment length: one row per bin."""
    first = next(iter(bins.values()))
    rows = []
    for place, row in enumerate(first):
        values = [f"{found[place].f1:.1f}" for found in bins.values()]
        rows.append([length_name(row), str(row.true), *values])
    columns = [escaped(name) for name in bins]
    return markdown_table(["segments that last", "true segments", *columns], rows)


def length_name(row: LengthBin) -> str:
    """A bin of lengths in words."""
    if row.high_s == float("inf"):
        return f"{row.low_s:g} s or longer" if row.low_s else "any length"
    return f"{row.low_s:g} to {row.high_s:g} s"


def _median(value: Interval | None) -> str:
    if value is None:
        return "undefined"
    return f"{value.mean:.3f} ({value.low:.3f}–{value.high:.3f})"


def _signed(gain: Interval) -> str:
    text = f"{gain.mean:+.1f} ({interval_span(gain)})"
    return f"**{text}**" if gain.excludes_zero else text


def _name(label: int, classes: Classes) -> str:
    return escaped(classes.names[label])
