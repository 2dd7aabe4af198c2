"""Two experiments side by side as the same page: which takes and classes got better or worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import Interval
from pjepa.report.analyses import Maps, class_confusion, medians_from, same_segments
from pjepa.report.content import Draft, map_parts, timeline_parts, training_parts
from pjepa.report.figures import Track
from pjepa.report.frames import take_sheets
from pjepa.report.gains import class_gains, f1_by_length, take_gains
from pjepa.report.markdown import given_markdown, lengths_markdown, trajectory_markdown
from pjepa.report.page import Folded, Page, Part, page_html
from pjepa.report.provenance import params_text
from pjepa.report.tables import LEGEND, by_privilege, marked_name, metric_names, signed, with_mark
from pjepa.report.widgets import (
    class_data,
    class_gain_data,
    confusion_data,
    length_data,
    progress_data,
    take_gain_data,
)
from pjepa.storage.writing import atomic_file
from pjepa.tools.compare.compare import Comparison, changed_params
from pjepa.tools.compare.experiments import Findings, read_findings

PREFERRED = ("pjepa", "pjepa_segment")  # what is compared take by take, where it is there
METRICS = ("acc", "edit", "f1_50")


def write_comparison_page(found: Comparison, pictures: Path, path: Path) -> None:
    """Read what the page shows of both experiments and write it; see `comparison_page`."""
    keys = [(cell.probe, cell.representation) for cell in found.pooled.cells]
    first, second = (read_findings(experiment.name, keys) for experiment in found.experiments)
    with atomic_file(path) as partial:
        text = page_html(comparison_page(found, (first, second), pictures))
        partial.write_text(text, encoding="utf-8")


def comparison_page(found: Comparison, findings: tuple[Findings, Findings], pictures: Path) -> Page:
    """Return the page of two experiments, second - first.

    `pictures` is the store of contact sheets.
    """
    names = tuple(experiment.name for experiment in found.experiments)
    draft = Draft(data={"classes": class_data(findings[0].classes)})
    draft.add("results", "Results", _results(found, findings))
    probe = found.pooled.probes[0]
    shown = shown_representation(found, probe)
    draft.add("takes", "Takes", _takes(found, findings, probe, shown, pictures, draft))
    draft.add("classes", "Classes", _classes(found, findings, shown, draft))
    draft.add("features", "Feature space", _features(findings, names, draft))
    curves = {
        name: (mine.curves, mine.probe_curve) for name, mine in zip(names, findings, strict=True)
    }
    draft.add("training", "Training", training_parts(draft, curves))
    draft.add("provenance", "Provenance", _provenance(found, findings))
    groups = found.pooled.cells[0].statistics.groups
    subtitle = f"{len(groups)} takes, differences are {names[1]} - {names[0]}"
    return Page(f"{names[1]} against {names[0]}", subtitle, draft.sections, draft.data)


def shown_representation(found: Comparison, probe: str) -> str:
    """Return the representation compared in detail: pjepa, or the last one both have."""
    names = [cell.representation for cell in found.pooled.of_probe(probe)]
    return next((name for name in PREFERRED if name in names), names[-1])


def _results(found: Comparison, findings: tuple[Findings, Findings]) -> list[Part]:
    rows = [[escaped(e.name), f"`{e.commit[:12]}`"] for e in found.experiments]
    parts: list[Part] = [markdown_table(["experiment", "commit"], rows)]
    changes = changed_params(findings[0].params, findings[1].params)
    if changes:
        heads = ["parameter", *(escaped(e.name) for e in found.experiments)]
        cells = [[f"`{key}`", escaped(a), escaped(b)] for key, (a, b) in changes.items()]
        parts += ["### Parameters that differ", markdown_table(heads, cells)]
    else:
        parts.append("No parameter differs.")
    parts.append(
        "Differences are paired over the same takes; intervals are 95 %, from a bootstrap over "
        "groups. **Bold**: the interval excludes 0."
    )
    for probe in found.pooled.probes:
        parts += [f"### Probe {escaped(probe)}", between_markdown(found, probe)]
    if any(
        cell.used_labels for probe in found.pooled.probes for cell in found.pooled.of_probe(probe)
    ):
        parts.append(LEGEND)
    if found.left_out:
        parts.append(f"Left out, not in both: {escaped(', '.join(found.left_out))}.")
    return parts


def between_markdown(found: Comparison, probe: str) -> str:
    """Return the scores of both experiments and their difference, for every representation."""
    cells = found.pooled.of_probe(probe)
    metrics = [name for name in METRICS if name in metric_names(cells)]
    first, second = (escaped(e.name) for e in found.experiments)
    header = [with_mark("representation", cells)]
    for name in metrics:
        header += [f"`{name}` {first}", f"`{name}` {second}", "difference"]
    rows = []
    for cell in by_privilege(cells):
        row = [f"`{marked_name(cell)}`"]
        for name in metrics:
            row += [f"{value:.1f}" for value in found.values(cell, name)]
            row.append(_same_or_signed(found.between[cell.probe, cell.representation][name]))
        rows.append(row)
    return markdown_table(header, rows)


def _takes(
    found: Comparison,
    findings: tuple[Findings, Findings],
    probe: str,
    shown: str,
    pictures: Path,
    draft: Draft,
) -> list[Part]:
    first, second = (e.cells[probe, shown] for e in found.experiments)
    names = [e.name for e in found.experiments]
    gains = take_gains(first, second)
    better = sum(gain.points > 0 for gain in gains)
    worse = sum(gain.points < 0 for gain in gains)
    parts: list[Part] = [
        f"`acc` of the {escaped(probe)} probe on `{shown}`: {better} takes got better, {worse} "
        f"worse, {len(gains) - better - worse} stayed.",
        draft.widget("gains", "takes", take_gain_data(gains, names)),
    ]
    tracks = [
        Track(f"{e.name}, {p}", e.cells[p, shown], mine.predictions[p, shown])
        for p in found.pooled.probes
        if found.pooled.cell(p, shown)
        for e, mine in zip(found.experiments, findings, strict=True)
    ]
    config = found.experiments[0].report
    videos = {row.take_id: row for row in findings[0].videos}
    sheets = take_sheets(videos, tracks[0].predictions, config.frames, pictures)
    return [*parts, "### Timelines", *timeline_parts(draft, tracks, gains, sheets, config, 0)]


def _classes(
    found: Comparison, findings: tuple[Findings, Findings], shown: str, draft: Draft
) -> list[Part]:
    names = [e.name for e in found.experiments]
    classes, config = findings[0].classes, found.experiments[0].report
    parts: list[Part] = []
    for probe in found.pooled.probes:
        if found.pooled.cell(probe, shown) is None:
            continue
        first, second = (e.cells[probe, shown].statistics for e in found.experiments)
        gains = class_gains(first, second, config)
        better = sum(row.gain.above_zero for row in gains)
        worse = sum(row.gain.excludes_zero and row.gain.mean < 0 for row in gains)
        cells = {
            name: mine.predictions[probe, shown] for name, mine in zip(names, findings, strict=True)
        }
        bins = f1_by_length(cells, classes.background, config.length_bins)
        counts = {name: class_confusion(p, len(classes.names)) for name, p in cells.items()}
        parts += [
            f"### {escaped(probe)} on `{shown}`: class accuracy",
            f"Share of a class's tokens that are right: {better} classes got better, {worse} "
            f"worse, {len(gains) - better - worse} cannot be told apart. Lines are 95 % intervals "
            "over groups.",
            draft.widget("gains", f"gains-{probe}", class_gain_data(gains, names)),
            "### F1@50 by segment length",
            draft.widget("lines", f"lengths-{probe}", length_data(bins)),
            lengths_markdown(bins),
            "### Confusion",
            draft.widget("confusion", f"confusion-{probe}", confusion_data(counts)),
        ]
    return parts


def _features(
    findings: tuple[Findings, Findings], names: tuple[str, ...], draft: Draft
) -> list[Part]:
    """Return trajectories and progress as both reports wrote them.

    A report without them says so.
    """
    both: dict[str, Mapping[str, Any]] = {}
    for name, mine in zip(names, findings, strict=True):
        if mine.analyses is None:
            return [f"{escaped(name)}: its report has no analyses; run `dvc repro report` there."]
        both[name] = mine.analyses
    takes = max(found["takes"] for found in both.values())
    titles = {f"{kind}, {name}": (kind, name) for kind in ("raw", *PREFERRED) for name in names}
    trajectories, profiles = (
        {
            title: both[name][what][kind]
            for title, (kind, name) in titles.items()
            if kind in both[name][what]
        }
        for what in ("trajectories", "progress")
    )
    medians = {title: medians_from(row) for title, row in trajectories.items()}
    parts: list[Part] = [*trajectory_markdown(medians, takes)]
    if profiles:
        chart = progress_data(profiles)
        chart["hidden"] = [name for name in profiles if not name.startswith("pjepa,")]
        parts += ["### Progress", draft.widget("lines", "progress", chart)]
    return [*parts, "### Maps", *_maps(findings, names, draft)]


def _maps(findings: tuple[Findings, Findings], names: tuple[str, ...], draft: Draft) -> list[Part]:
    """Return the maps of both: side by side if they show the same segments, else stacked."""
    both: dict[str, Maps] = {}
    for name, mine in zip(names, findings, strict=True):
        if mine.maps is None:
            return [f"{escaped(name)}: its report has no maps; run `dvc repro report` there."]
        both[name] = mine.maps
    parts: list[Part] = ["Every map is a t-SNE of its own: compare neighbourhoods, not places."]
    first, second = both.values()
    if not same_segments(first, second):
        for name, maps in both.items():
            parts += [f"#### {escaped(name)}", *map_parts(draft, f"maps-{name}", maps)]
        return parts
    kinds = dict.fromkeys([*first.points, *second.points])
    shown = {
        f"{kind}, {name}": (kind, maps)
        for kind in kinds
        for name, maps in both.items()
        if kind in maps.points
    }
    points = {title: maps.points[kind] for title, (kind, maps) in shown.items()}
    medians = {title: maps.paths[kind] for title, (kind, maps) in shown.items()}
    return [*parts, *map_parts(draft, "maps", replace(first, points=points, paths=medians))]


def _provenance(found: Comparison, findings: tuple[Findings, Findings]) -> list[Part]:
    parts: list[Part] = []
    for experiment, mine in zip(found.experiments, findings, strict=True):
        cells = [experiment.cells[c.probe, c.representation] for c in found.pooled.cells]
        first = [cell for cell in cells if cell.probe == found.pooled.probes[0]]
        parts += [f"### {escaped(experiment.name)}", f"Commit `{experiment.commit}`."]
        parts += [given_markdown(first), Folded("All parameters", params_text(mine.params))]
    return parts


def _same_or_signed(difference: Interval) -> str:
    return "same" if difference.low == difference.high == 0 else signed(difference)
