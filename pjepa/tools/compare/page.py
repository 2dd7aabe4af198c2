"""Two experiments side by side as the same page: which takes and classes got better or worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pjepa.core.text import escaped, markdown_table
from pjepa.report import markdown, widgets
from pjepa.report.analyses import Maps, medians_from
from pjepa.report.content import (
    class_parts,
    map_parts,
    timeline_parts,
    training_parts,
    trajectory_and_progress,
)
from pjepa.report.figures import Track
from pjepa.report.frames import take_sheets
from pjepa.report.gains import class_gains, take_gains
from pjepa.report.page import Page, Part
from pjepa.report.provenance import params_part
from pjepa.report.tables import (
    LEGEND,
    bold_if_sure,
    by_privilege,
    marked_name,
    metric_names,
    with_mark,
)
from pjepa.storage.writing import atomic_file
from pjepa.tools.compare.compare import Comparison, changed_params
from pjepa.tools.compare.experiments import ExperimentDetails, read_details

PREFERRED = ("pjepa", "pjepa_segment")  # what is compared take by take, where it is there
METRICS = ("acc", "edit", "f1_50")
Details = Mapping[str, ExperimentDetails]  # of both experiments, by name


def write_comparison_page(comparison: Comparison, pictures: Path, path: Path) -> None:
    """Read what the page shows of both experiments and write it; see `comparison_page`."""
    keys = [(cell.probe, cell.representation) for cell in comparison.pooled.cells]
    details = {e.name: read_details(e.name, keys) for e in comparison.experiments}
    with atomic_file(path) as partial:
        text = comparison_page(comparison, details, pictures).html()
        partial.write_text(text, encoding="utf-8")


def comparison_page(comparison: Comparison, details: Details, pictures: Path) -> Page:
    """Return the page of two experiments, second - first.

    `pictures` is the store of contact sheets.
    """
    first, second = details
    groups = comparison.pooled.cells[0].statistics.groups
    subtitle = f"{len(groups)} takes, differences are {second} - {first}"
    page = Page(f"{second} against {first}", subtitle)
    page.data["classes"] = widgets.class_data(details[first].classes)
    page.add("results", "Results", _results(comparison, details))
    names = [c.representation for c in comparison.pooled.of_probe(comparison.pooled.probes[0])]
    shown = next((name for name in PREFERRED if name in names), names[-1])
    page.add("takes", "Takes", _takes(page, comparison, details, shown, pictures))
    page.add("classes", "Classes", _classes(page, comparison, details, shown))
    page.add("features", "Feature space", _features(page, details))
    curves = {name: (mine.curves, mine.probe_curve) for name, mine in details.items()}
    page.add("training", "Training", training_parts(page, curves))
    page.add("provenance", "Provenance", _provenance(comparison))
    return page


def _results(comparison: Comparison, details: Details) -> list[Part]:
    names = [escaped(name) for name in details]
    commits = [[escaped(e.name), f"`{e.commit[:12]}`"] for e in comparison.experiments]
    parts: list[Part] = [markdown_table(["experiment", "commit"], commits)]
    changes = changed_params(*(e.params for e in comparison.experiments))
    if changes:
        rows = [[f"`{key}`", escaped(a), escaped(b)] for key, (a, b) in changes.items()]
        parts += ["### Parameters that differ", markdown_table(["parameter", *names], rows)]
    else:
        parts.append("No parameter differs.")
    parts.append(
        "Differences are paired over the same takes; intervals are 95 %, from a bootstrap over "
        "groups. **Bold**: the interval excludes 0."
    )
    for probe in comparison.pooled.probes:
        parts += [f"### Probe {escaped(probe)}", _between_markdown(comparison, probe)]
    if any(cell.used_labels for cell in comparison.pooled.cells):
        parts.append(LEGEND)
    if comparison.left_out:
        parts.append(f"Left out, not in both: {escaped(', '.join(comparison.left_out))}.")
    return parts


def _between_markdown(comparison: Comparison, probe: str) -> str:
    """Return the scores of both experiments and their difference, for every representation."""
    cells = comparison.pooled.of_probe(probe)
    metrics = [name for name in METRICS if name in metric_names(cells)]
    first, second = (escaped(e.name) for e in comparison.experiments)
    header = [with_mark("representation", cells)]
    for name in metrics:
        header += [f"`{name}` {first}", f"`{name}` {second}", "difference"]
    rows = []
    for cell in by_privilege(cells):
        row = [f"`{marked_name(cell)}`"]
        for name in metrics:
            change = comparison.between[cell.probe, cell.representation][name]
            row += [f"{value:.1f}" for value in comparison.values(cell, name)]
            row.append("0.0 (same)" if change.low == change.high == 0 else bold_if_sure(change))
        rows.append(row)
    return markdown_table(header, rows)


def _takes(
    page: Page, comparison: Comparison, details: Details, shown: str, pictures: Path
) -> list[Part]:
    probe = comparison.pooled.probes[0]
    first, second = (e.cells[probe, shown] for e in comparison.experiments)
    gains = take_gains(first, second)
    changes = _better_and_worse([gain.points for gain in gains])
    parts: list[Part] = [
        f"`acc` of the {escaped(probe)} probe on `{shown}`: {changes.format('takes')} stayed.",
        page.widget("gains", "takes", widgets.gain_data(gains, list(details))),
    ]
    tracks = [
        Track(f"{e.name}, {p}", e.cells[p, shown], details[e.name].predictions[p, shown])
        for p in comparison.pooled.probes
        if comparison.pooled.cell(p, shown)
        for e in comparison.experiments
    ]
    config = comparison.experiments[0].report
    videos = {row.take_id: row for row in next(iter(details.values())).videos}
    sheets = take_sheets(videos, tracks[0].predictions, config.frames, pictures)
    return [*parts, "### Timelines", *timeline_parts(page, tracks, gains, sheets, config, 0)]


def _classes(page: Page, comparison: Comparison, details: Details, shown: str) -> list[Part]:
    config, classes = comparison.experiments[0].report, next(iter(details.values())).classes
    parts: list[Part] = []
    for probe in comparison.pooled.probes:
        if comparison.pooled.cell(probe, shown) is None:
            continue
        first, second = (e.cells[probe, shown].statistics for e in comparison.experiments)
        gains = class_gains(first, second, config)
        changes = _better_and_worse([g.gain.mean * g.gain.excludes_zero for g in gains])
        predictions = {name: mine.predictions[probe, shown] for name, mine in details.items()}
        parts += [
            f"### {escaped(probe)} on `{shown}`: class accuracy",
            f"{changes.format('classes')} cannot be told apart.",
            *class_parts(page, probe, gains, predictions, classes, config),
        ]
    return parts


def _better_and_worse(changes: Sequence[float]) -> str:
    better, worse = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return f"{better} {{}} got better, {worse} worse, {len(changes) - better - worse}"


def _features(page: Page, details: Details) -> list[Part]:
    """Return trajectories and progress as both reports wrote them.

    A report without them says so.
    """
    analyses: dict[str, Mapping[str, Any]] = {}
    for name, mine in details.items():
        if mine.analyses is None:
            todo = "its report has no analyses; run `dvc repro report` there."
            return [f"**{escaped(name)}**: {todo}"]
        analyses[name] = mine.analyses
    takes = max(mine["takes"] for mine in analyses.values())
    trajectories, profiles = (
        {
            f"{kind}, {name}": mine[what][kind]
            for kind in ("raw", *PREFERRED)
            for name, mine in analyses.items()
            if kind in mine[what]
        }
        for what in ("trajectories", "progress")
    )
    medians = {title: medians_from(row) for title, row in trajectories.items()}
    lines = [name for name in profiles if name.startswith("pjepa,")]
    parts = trajectory_and_progress(page, takes, medians, profiles, lines)
    return [*parts, "### Maps", *_maps(page, details)]


def _maps(page: Page, details: Details) -> list[Part]:
    """Return the maps of both: side by side if they show the same segments, else stacked."""
    both: dict[str, Maps] = {}
    for name, mine in details.items():
        if mine.maps is None:
            return [f"**{escaped(name)}**: its report has no maps; run `dvc repro report` there."]
        both[name] = mine.maps
    parts: list[Part] = ["Every map is a t-SNE of its own: compare neighbourhoods, not places."]
    first, second = both.values()
    if not first.shows_the_segments_of(second):
        for name, maps in both.items():
            parts += [f"#### {escaped(name)}", *map_parts(page, f"maps-{name}", maps)]
        return parts
    titles = {
        f"{kind}, {name}": (kind, maps)
        for kind in dict.fromkeys([*first.points, *second.points])
        for name, maps in both.items()
        if kind in maps.points
    }
    points = {title: maps.points[kind] for title, (kind, maps) in titles.items()}
    medians = {title: maps.paths[kind] for title, (kind, maps) in titles.items()}
    return [*parts, *map_parts(page, "maps", replace(first, points=points, paths=medians))]


def _provenance(comparison: Comparison) -> list[Part]:
    parts: list[Part] = []
    for experiment in comparison.experiments:
        cells = [experiment.cells[c.probe, c.representation] for c in comparison.pooled.cells]
        first = [cell for cell in cells if cell.probe == comparison.pooled.probes[0]]
        parts += [f"### {escaped(experiment.name)}", f"Commit `{experiment.commit}`."]
        parts += [markdown.given(first), params_part(experiment.params)]
    return parts
