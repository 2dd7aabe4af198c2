"""The page of a run, section by section: its text and the data of its widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.core.tables import Classes
from pjepa.core.text import escaped
from pjepa.report.analyses import SHOWN, Analyses, Maps, analyses_json, class_confusion, maps_json
from pjepa.report.config import ReportConfig
from pjepa.report.figures import (
    Curve,
    Track,
    draw_class_gains,
    draw_confusion,
    draw_curves,
    draw_maps,
    draw_pair,
    draw_probe_curve,
    draw_progress,
    draw_summary,
    draw_timelines,
    read_curves,
    write_plots,
)
from pjepa.report.frames import Sheet
from pjepa.report.gains import (
    ChosenTake,
    DemoNumbers,
    Gain,
    chosen_takes,
    class_gains,
    f1_by_length,
    take_gains,
)
from pjepa.report.markdown import (
    about_markdown,
    background_parts,
    class_gains_markdown,
    conditions,
    headline,
    lengths_markdown,
    other_differences,
    overview_markdown,
    paths_markdown,
    proof_markdown,
    report_markdown,
    score_parts,
    trajectory_markdown,
    zoom_markdown,
)
from pjepa.report.page import (
    Beside,
    Folded,
    Page,
    PageSection,
    Part,
    Widget,
    page_html,
    script_json,
)
from pjepa.report.provenance import Origin, dated, origin_parts
from pjepa.report.results import Predictions, Results
from pjepa.report.tables import by_privilege, report_json
from pjepa.report.widgets import (
    class_data,
    class_gain_data,
    confusion_data,
    curve_data,
    length_data,
    map_data,
    probe_curve_data,
    progress_data,
    score_data,
    sheet_data,
    take_data,
)
from pjepa.select.curve import ProbeCurve
from pjepa.storage.writing import atomic_folder, write_json

# Parts that the page of a run and of a comparison share: training, timelines, maps.

MEGABYTE = 1_000_000
PROBE_CURVE = (
    "Frame accuracy of a linear probe on snapshots of the encoder, fitted on train takes and "
    "scored on held-out train groups, which pretraining has not seen. `raw` is the stream itself, "
    "`random` the same encoder untrained. It only shows: nothing is chosen by it."
)
TIMELINE_SHARE = 0.6  # of the page; pictures get what is left


@dataclass
class Draft:
    """Sections and data while a page is put together."""

    sections: list[PageSection] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def widget(self, kind: str, key: str, value: Any) -> Widget:
        """Return a widget whose data is kept under `key`."""
        self.data[key] = value
        return Widget(kind, key)

    def add(self, name: str, title: str, parts: Sequence[Part]) -> None:
        """Add a section, unless it is empty."""
        if parts:
            self.sections.append(PageSection(name, title, parts))


def training_parts(
    draft: Draft, owners: Mapping[str, tuple[Sequence[Curve], ProbeCurve]]
) -> list[Part]:
    """Return curves of pretraining and of the probe over its epochs.

    Runs share charts, by their names.
    """
    logged = {name or "pretraining": curves for name, (curves, _) in owners.items() if curves}
    parts: list[Part] = [draft.widget("curves", "curves", curve_data(logged))] if logged else []
    probed = {name: curve for name, (_, curve) in owners.items() if curve.scores}
    if probed:
        chart = draft.widget("lines", "probe-curve", probe_curve_data(probed))
        parts += ["### Linear probe over epochs", Beside([chart, PROBE_CURVE])]
    return parts


def timeline_parts(
    draft: Draft,
    tracks: Sequence[Track],
    gains: Sequence[Gain],
    sheets: Mapping[str, Sheet],
    config: ReportConfig,
    spent: int,
) -> list[Part]:
    """Return timelines of as many takes as the page may hold, then pictures.

    Says what is left out.
    """
    if not tracks or not gains:
        return []
    room = config.page_mb * MEGABYTE - spent
    groups = tracks[0].cell.statistics.groups
    takes: list[dict[str, Any]] = []
    used = 0
    for choice in chosen_takes(gains, config.takes):
        take = take_data(choice, tracks, groups[choice.gain.take_id])
        used += len(script_json(take))
        if takes and used > TIMELINE_SHARE * room:
            break
        takes.append(take)
    pictured = 0
    for take in takes:
        if take["id"] in sheets:
            sheet = sheet_data(sheets[take["id"]])
            used += len(script_json(sheet))
            if used > 0.97 * room:
                break
            take["frames"] = sheet
            pictured += 1
    text = _timeline_text(len(takes), len(gains), pictured, bool(sheets), config)
    return [text, draft.widget("timelines", "timelines", {"takes": takes})]


def _timeline_text(
    shown: int, takes: int, pictured: int, videos: bool, config: ReportConfig
) -> str:
    which = f"All {takes} takes" if shown == takes else f"**{shown} of {takes} takes**"
    text = f"{which}: best, median and worst by gain first, then evenly between. "
    if shown < takes:
        text += f"The rest is left out to keep the page below {config.page_mb:g} MB and readable. "
    text += (
        "Point at a segment for its class, time and mean score; click it for pictures. With the "
        "keyboard: Tab to a strip, arrow keys, Enter. "
    )
    if not config.frames:
        return text + "Pictures are off (`report.frames`)."
    if not videos:
        return text + "No videos were found on this machine, so there are no pictures."
    if pictured < shown:
        text += f"Pictures of {pictured} takes fit into the page."
    return text


def map_parts(draft: Draft, key: str, maps: Maps) -> list[Part]:
    """Return the maps of the same segments, and the table of the paths on them."""
    chart = map_data(maps.points, maps.labels, maps.times, maps.takes, maps.take)
    return [draft.widget("maps", key, chart), *paths_markdown(maps)]


CHART_SHOWN = SHOWN  # lines of the progress chart at first
PROOF = "### The demo's proof"
PROGRESS = (
    "Mean over takes of the progress p in bins of relative time; bands are the quartiles over "
    "takes, the dotted line even progress. Every take is measured on its own line from first to "
    "last segment, so all curves begin near 0 and end near 1."
)


@dataclass(frozen=True)
class ReportRun:
    """One finished run: everything its page is made from."""

    dataset: str
    results: Results
    demo: DemoNumbers | None
    classes: Classes
    predictions: Mapping[tuple[str, str], Predictions]  # probe, representation
    tracks: Sequence[Track]
    analyses: Analyses
    curves: Sequence[Curve]
    probe_curve: ProbeCurve
    sheets: Mapping[str, Sheet]
    origin: Origin
    config: ReportConfig

    def pairs(self) -> list[str]:
        """Return the probes that have both raw and pjepa."""
        both = [
            self.results.cell(probe, SHOWN[0]) and self.results.cell(probe, SHOWN[1])
            for probe in self.results.probes
        ]
        return [p for p, cell in zip(self.results.probes, both, strict=True) if cell]


def run_page(run: ReportRun) -> Page:
    """Return the page of one run."""
    draft = Draft(data={"classes": class_data(run.classes)})
    draft.add("results", "Results", _results(run, draft))
    draft.add("pair", "Two steps that look alike", _pair(run, draft))
    draft.add("features", "Feature space", _features(run, draft))
    draft.add("classes", "Classes", _classes(run, draft))
    draft.add("training", "Training", training_parts(draft, {"": (run.curves, run.probe_curve)}))
    draft.add("provenance", "Provenance", _provenance(run))
    spent = len(page_html(Page("", "", draft.sections, draft.data)))
    timelines = timeline_parts(draft, run.tracks, run_gains(run), run.sheets, run.config, spent)
    if timelines:
        draft.sections.insert(1, PageSection("timelines", "Timelines", timelines))
    first = run.results.cells[0]
    groups = first.statistics.groups
    facts = [
        f"data set {run.dataset}",
        f"{len(groups)} takes of the {first.split} split in {len(set(groups.values()))} groups",
        dated(run.origin.revision),
    ]
    title, found = "P-JEPA report", headline(run.results)
    return Page(title, " · ".join(facts), draft.sections, draft.data, found)


def run_gains(run: ReportRun) -> list[Gain]:
    """Return the takes by gain of the first probe that has raw and pjepa."""
    for probe in run.pairs():
        before, after = (run.results.cell(probe, name) for name in SHOWN)
        if before and after:
            return take_gains(before, after)
    return []


def _results(run: ReportRun, draft: Draft) -> list[Part]:
    parts: list[Part] = []
    if len(run.results.probes) > 1:
        parts += ["### All probes, `acc`", overview_markdown(run.results)]
    for probe in run.results.probes:
        demo = run.demo if probe == run.results.probes[0] else None
        cells = run.results.of_probe(probe)
        rows = score_data(by_privilege(cells), demo)
        chart = draft.widget("scores", f"scores-{probe}", rows)
        parts += [f"### Probe {escaped(probe)}", Beside([chart, about_markdown(cells)])]
        table, *texts, title, differences = score_parts(run.results, probe)
        wide = any(text.startswith("|") for text in texts)  # streamed scores have many columns
        parts += [table, *texts] if wide else [Beside([table, "\n\n".join(texts)])]
        proof = [] if demo is None else [f"{PROOF}\n\n{proof_markdown(run.results, demo)}"]
        parts.append(Beside([f"{title}\n\n{differences}", *proof]))
        if others := other_differences(run.results, probe):
            parts.append(Folded("All other differences", others, markdown=True))
    return [*parts, "### How to read the numbers", conditions(run.results)]


def _pair(run: ReportRun, draft: Draft) -> list[Part]:
    zoom = run.analyses.zoom
    if zoom is None:
        return []
    draft.data["pair-map"] = map_data(zoom.points, zoom.labels)
    parts: list[Part] = list(zoom_markdown(zoom, run.classes, run.results.probes[0]))
    gain = next(gain for gain in run_gains(run) if gain.take_id == zoom.take)
    choice = ChosenTake(gain, "most of the rarer of the two classes", "pair")
    take = take_data(choice, run.tracks, run.tracks[0].cell.statistics.groups[zoom.take])
    take["focus"] = [zoom.pair.first, zoom.pair.second]
    if zoom.take in run.sheets:
        take["frames"] = sheet_data(run.sheets[zoom.take])
    return [parts[0], Widget("maps", "pair-map"), parts[1], draft.widget("take", "pair-take", take)]


def _features(run: ReportRun, draft: Draft) -> list[Part]:
    found = run.analyses
    parts: list[Part] = ["### Trajectories"]
    parts += trajectory_markdown(found.trajectories, found.takes)
    if found.profiles:
        chart = progress_data(analyses_json(found)["progress"])
        chart["hidden"] = [s["name"] for s in chart["series"] if s["name"] not in CHART_SHOWN]
        parts += ["### Progress", Beside([draft.widget("lines", "progress", chart), PROGRESS])]
    if found.maps is not None:
        parts += ["### Maps", *map_parts(draft, "maps", found.maps)]
    return parts


def _classes(run: ReportRun, draft: Draft) -> list[Part]:
    parts: list[Part] = []
    for probe in run.pairs():
        before, after = (run.results.cell(probe, name) for name in SHOWN)
        if before is None or after is None:
            continue
        gains = class_gains(before.statistics, after.statistics, run.config)
        found = {name: run.predictions[probe, name] for name in SHOWN}
        bins = f1_by_length(found, run.classes.background, run.config.length_bins)
        counts = {n: class_confusion(p, len(run.classes.names)) for n, p in found.items()}
        lines = draft.widget("lines", f"lengths-{probe}", length_data(bins))
        parts += [
            f"### {escaped(probe)}: class accuracy, `pjepa` - `raw`",
            draft.widget("gains", f"gains-{probe}", class_gain_data(gains, SHOWN)),
            "Share of a class's tokens that are right; lines are 95 % intervals over groups.",
            f"### {escaped(probe)}: F1@50 by segment length",
            Beside([lines, lengths_markdown(bins)]),
            "Bins hold about equally many true segments. Recall counts true segments of a bin, "
            "precision predicted ones by their own length.",
            f"### {escaped(probe)}: confusion",
            draft.widget("confusion", f"confusion-{probe}", confusion_data(counts)),
        ]
    return parts


def _provenance(run: ReportRun) -> list[Part]:
    parts: list[Part] = []
    for probe in run.results.probes:
        if len(run.results.probes) > 1:
            parts.append(f"### Probe {escaped(probe)}")
        parts += background_parts(run.results, probe)
    return [*parts, *origin_parts(run.origin)]


# The report of a data set without labels: what was pretrained, and why nothing is scored.


def write_unlabelled(why: str, pretrain: Path, origin: Origin, out: Path) -> None:
    """Write a page, report.md, report.json and the training curves to the folder `out`."""
    with atomic_folder(out) as folder:
        lines = ["# Results", f"No probe was run: {why}."]
        lines.append("Features are in `data/representations/`; `models/pjepa` encodes more takes.")
        curves = read_curves(pretrain)
        sections = [PageSection("results", "Results", [escaped(lines[1]), lines[2]])]
        data: dict[str, Any] = {"classes": {"names": [], "looks": [], "background": None}}
        if curves:
            data["curves"] = curve_data({"pretraining": curves})
            sections.append(PageSection("training", "Training", [Widget("curves", "curves")]))
            draw_curves(curves, folder / "curves.png")
            lines.append("![Training curves](curves.png)")
        sections.append(PageSection("provenance", "Provenance", origin_parts(origin)))
        (folder / "report.md").write_text("\n\n".join(lines) + "\n")
        page = Page("P-JEPA report", "a data set without labels", sections, data)
        (folder / "index.html").write_text(page_html(page), encoding="utf-8")
        write_json(folder / "report.json", {"cells": {}, "skipped": why})


# The report's folder: the page, report.md, numbers, pictures and the tables of `dvc plots`.

TIMELINES = "timelines"


def write_report(run: ReportRun, out: Path) -> None:
    """Write the folder `out` whole; pictures show the first probe, timelines all of them."""
    with atomic_folder(out) as folder:
        pictures = _draw(run, folder)
        write_json(folder / "report.json", report_json(run.results, run.demo))
        write_json(folder / "analyses.json", analyses_json(run.analyses))
        if run.analyses.maps is not None:
            write_json(folder / "maps.json", maps_json(run.analyses.maps))
        probe = run.results.probes[0]
        learned = run.predictions.get((probe, SHOWN[1]))
        profiles = run.analyses.profiles
        write_plots(folder / "plots", profiles, learned, run.classes)
        text = report_markdown(run.results, run.demo, pictures, _analyses_markdown(run))
        (folder / "report.md").write_text(text)
        (folder / "index.html").write_text(page_html(run_page(run)), encoding="utf-8")


def _draw(run: ReportRun, folder: Path) -> dict[str, str]:
    """Draw every picture there is data for and return their captions by file name."""
    probe = run.results.probes[0]
    pictures = {"summary.png": "Accuracy of every representation"}
    draw_summary(run.results.of_probe(probe), run.demo, folder / "summary.png")
    (folder / TIMELINES).mkdir()
    drawn = draw_timelines(run.tracks, run.classes, run.config.timelines, folder / TIMELINES)
    pictures |= {f"{TIMELINES}/{name}": text for name, text in drawn.items()}
    found = run.analyses
    if found.profiles:
        draw_progress(found.profiles, folder / "progress.png")
        pictures["progress.png"] = "Progress over relative time, with quartiles over takes"
    if found.maps is not None:
        draw_maps(found.maps, run.classes.background, folder / "tsne.png")
        pictures["tsne.png"] = "t-SNE of segments by relative time and by class"
    if found.zoom is not None:
        mine = [track for track in run.tracks if track.cell.probe == probe]
        draw_pair(found.zoom, mine, run.classes, folder / "pair.png")
        pictures["pair.png"] = "The pair that raw confuses and P-JEPA separates most"
    pictures |= _draw_classes(run, probe, folder)
    if run.curves:
        draw_curves(run.curves, folder / "curves.png")
        pictures["curves.png"] = "Training curves"
    if run.probe_curve.scores:
        draw_probe_curve(run.probe_curve, folder / "probe.png")
        pictures["probe.png"] = "Linear probe over epochs, on held-out train groups"
    return pictures


def _draw_classes(run: ReportRun, probe: str, folder: Path) -> dict[str, str]:
    if probe not in run.pairs():
        return {}
    before, after = (run.results.cell(probe, name) for name in SHOWN)
    if before is None or after is None:
        return {}
    gains = class_gains(before.statistics, after.statistics, run.config)
    draw_class_gains(gains, run.classes, folder / "classes.png")
    size = len(run.classes.names)
    counts = {name: class_confusion(run.predictions[probe, name], size) for name in SHOWN}
    draw_confusion(counts, folder / "confusion.png")
    return {"classes.png": "Gain per class", "confusion.png": "Confusion of raw and P-JEPA"}


def _analyses_markdown(run: ReportRun) -> list[str]:
    """Return the analyses' part of report.md."""
    found, probe = run.analyses, run.results.probes[0]
    parts = ["## Trajectories in feature space"]
    parts += trajectory_markdown(found.trajectories, found.takes)
    if found.maps is not None:
        parts += ["## t-SNE", *paths_markdown(found.maps)]
    if found.zoom is not None:
        parts += ["## Two steps that look alike", *zoom_markdown(found.zoom, run.classes, probe)]
    for name in run.pairs():
        before, after = (run.results.cell(name, shown) for shown in SHOWN)
        if before is not None and after is not None:
            gains = class_gains(before.statistics, after.statistics, run.config)
            parts += [f"## Classes, {name} probe", class_gains_markdown(gains, run.classes)]
            cells = {shown: run.predictions[name, shown] for shown in SHOWN}
            bins = f1_by_length(cells, run.classes.background, run.config.length_bins)
            parts += ["F1@50 by segment length:", lengths_markdown(bins)]
    return parts
