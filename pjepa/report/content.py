"""The page of a run, section by section, and everything else in the report's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.core.tables import Classes
from pjepa.core.text import escaped
from pjepa.report import markdown, widgets
from pjepa.report.analyses import (
    ENOUGH,
    PAIR_POINTS,
    SHOWN,
    Analyses,
    Maps,
    Medians,
    analyses_json,
    class_confusion,
    maps_json,
)
from pjepa.report.config import ReportConfig
from pjepa.report.figures import Track, draw_timelines, write_plots
from pjepa.report.frames import Sheet
from pjepa.report.gains import (
    ChosenTake,
    ClassGain,
    DemoNumbers,
    Gain,
    chosen_takes,
    class_gains,
    f1_by_length,
    take_gains,
)
from pjepa.report.page import Collapsible, Columns, Page, Part, script_json
from pjepa.report.provenance import Origin, dated, origin_parts
from pjepa.report.results import REFERENCE, Predictions, Results
from pjepa.report.tables import by_privilege, report_json
from pjepa.select.curve import ProbeCurve
from pjepa.storage.writing import atomic_folder, write_json

# Parts that the page of a run and of a comparison share.

MEGABYTE = 1_000_000
TIMELINE_SHARE, PICTURE_SHARE = 0.6, 0.97  # of the page, up to which each of them may fill it


def training_parts(
    page: Page, owners: Mapping[str, tuple[Sequence[widgets.Curve], ProbeCurve]]
) -> list[Part]:
    """Return curves of pretraining and of the probe over its epochs.

    Runs share charts, by their names.
    """
    logged = {name or "pretraining": curves for name, (curves, _) in owners.items() if curves}
    parts: list[Part] = []
    if logged:
        parts.append(page.widget("curves", "curves", widgets.curve_data(logged)))
    probed = {name: curve for name, (_, curve) in owners.items() if curve.scores}
    if probed:
        chart = page.widget("lines", "probe-curve", widgets.probe_curve_data(probed))
        parts += ["### Linear probe over epochs", Columns([chart, markdown.text("probe_curve")])]
    return parts


def timeline_parts(
    page: Page,
    tracks: Sequence[Track],
    gains: Sequence[Gain],
    sheets: Mapping[str, Sheet],
    config: ReportConfig,
    spent: int,
) -> list[Part]:
    """Return timelines of as many takes as the page may hold, then pictures.

    Says what is left out. `spent` are the bytes that the rest of the page needs.
    """
    if not tracks or not gains:
        return []
    room = config.page_mb * MEGABYTE - spent
    takes: list[dict[str, Any]] = []
    used = 0
    for choice in chosen_takes(gains, config.takes):
        take = widgets.take_data(choice, tracks)
        used += len(script_json(take))
        if takes and used > TIMELINE_SHARE * room:
            break
        takes.append(take)
    pictured = 0
    for take in (take for take in takes if take["id"] in sheets):
        sheet = widgets.sheet_data(sheets[take["id"]])
        used += len(script_json(sheet))
        if used > PICTURE_SHARE * room:
            break
        take["frames"] = sheet
        pictured += 1
    counts = {"shown": len(takes), "takes": len(gains), "pictured": pictured}
    about = markdown.text("timelines", **counts, videos=bool(sheets), config=config)
    return [about, page.widget("timelines", "timelines", {"takes": takes})]


def class_parts(
    page: Page,
    probe: str,
    gains: Sequence[ClassGain],
    predictions: Mapping[str, Predictions],
    classes: Classes,
    config: ReportConfig,
) -> list[Part]:
    """Return class accuracy, F1 by segment length and confusion of two cells by their names."""
    names = list(predictions)
    bins = f1_by_length(predictions, classes.background, config.length_bins)
    counts = {n: class_confusion(p, len(classes.names)) for n, p in predictions.items()}
    table = markdown.class_gains(gains, names, classes)
    lengths = page.widget("lines", f"lengths-{probe}", widgets.length_data(bins))
    return [
        page.widget("gains", f"gains-{probe}", widgets.gain_data(gains, names)),
        markdown.text("classes"),
        Collapsible("Every class as a table", table),
        f"### {escaped(probe)}: F1@50 by segment length",
        Columns([lengths, markdown.lengths(bins)]),
        markdown.text("lengths"),
        f"### {escaped(probe)}: confusion",
        page.widget("confusion", f"confusion-{probe}", widgets.confusion_data(counts)),
    ]


def trajectory_and_progress(
    page: Page,
    takes: int,
    trajectories: Mapping[str, Medians],
    profiles: Mapping[str, Mapping[str, Any]],
    lines: Sequence[str],
) -> list[Part]:
    """Return trajectories, and progress with these lines of the chart shown at first."""
    table = markdown.diagnostics(trajectories, markdown.TRAJECTORIES)
    parts: list[Part] = ["### Trajectories", table, markdown.text("trajectories", takes=takes)]
    if profiles:
        hidden = {"hidden": [name for name in profiles if name not in lines]}
        chart = page.widget("lines", "progress", widgets.progress_data(profiles) | hidden)
        parts += ["### Progress", Columns([chart, markdown.text("progress")])]
    return parts


def map_parts(page: Page, key: str, maps: Maps) -> list[Part]:
    """Return the maps of the same segments, and the table of the paths on them."""
    table = markdown.diagnostics(maps.paths, markdown.MAP_PATHS)
    chart = page.widget("maps", key, widgets.map_data(maps))
    return [chart, table, markdown.text("maps", maps=maps)]


# The page of a run.


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
    curves: Sequence[widgets.Curve]
    probe_curve: ProbeCurve
    sheets: Mapping[str, Sheet]
    origin: Origin
    config: ReportConfig

    def gains(self) -> list[Gain]:
        """Return the takes by gain of the first probe that has raw and pjepa."""
        for probe in self.results.probes:
            before, after = (self.results.cell(probe, name) for name in SHOWN)
            if before and after:
                return take_gains(before, after)
        return []


def run_page(run: ReportRun) -> Page:
    """Return the page of one run."""
    groups = run.results.cells[0].statistics.groups
    facts = [
        f"data set {run.dataset}",
        f"{len(groups)} takes of the {run.results.cells[0].split} split in "
        f"{len(set(groups.values()))} groups",
        dated(run.origin.revision),
    ]
    page = Page("P-JEPA report", " · ".join(facts), markdown.headline(run.results))
    page.data["classes"] = widgets.class_data(run.classes)
    page.add("results", "Results", _results(run, page))
    page.add("pair", "Two steps that look alike", _pair(run, page))
    page.add("features", "Feature space", _features(run, page))
    page.add("classes", "Classes", _classes(run, page))
    page.add("training", "Training", training_parts(page, {"": (run.curves, run.probe_curve)}))
    page.add("provenance", "Provenance", _provenance(run))
    spent = len(page.html())
    timelines = timeline_parts(page, run.tracks, run.gains(), run.sheets, run.config, spent)
    page.add("timelines", "Timelines", timelines)
    if timelines:
        page.sections.insert(1, page.sections.pop())
    return page


def _results(run: ReportRun, page: Page) -> list[Part]:
    results = run.results
    parts: list[Part] = []
    if len(results.probes) > 1:
        parts += ["### All probes, `acc`", markdown.overview(results)]
    for probe in results.probes:
        demo = run.demo if probe == results.probes[0] else None
        cells = results.of_probe(probe)
        bars = widgets.score_data(by_privilege(cells), demo)
        chart = page.widget("scores", f"scores-{probe}", bars)
        parts += [f"### Probe {escaped(probe)}", Columns([chart, markdown.about(cells)])]
        table, texts = markdown.scores(results, probe), [markdown.fit(cells)]
        texts += markdown.streaming(results, probe)
        wide = any(each.startswith("|") for each in texts)  # streamed scores have many columns
        parts += [table, *texts] if wide else [Columns([table, "\n\n".join(texts)])]
        main, others = markdown.differences(results, probe)
        main = main or f"None: `{REFERENCE}` is not among the cells."
        proof = [] if demo is None else [f"### The demo's proof\n\n{markdown.proof(results, demo)}"]
        parts.append(Columns([f"### Differences\n\n{main}", *proof]))
        if others:
            parts.append(Collapsible("All other differences", others))
    return [*parts, "### How to read the numbers", markdown.conditions(results)]


def _pair(run: ReportRun, page: Page) -> list[Part]:
    view = run.analyses.pair
    if view is None:
        return []
    chosen = markdown.text("pair", view=view, classes=run.classes, probe=run.results.probes[0])
    rule = markdown.text("pair_maps", view=view, most=PAIR_POINTS, enough=ENOUGH)
    gain = next(gain for gain in run.gains() if gain.take_id == view.take)
    choice = ChosenTake(gain, "most of the rarer of the two classes", "pair")
    take = widgets.take_data(choice, run.tracks)
    take["focus"] = [view.pair.first, view.pair.second]
    if view.take in run.sheets:
        take["frames"] = widgets.sheet_data(run.sheets[view.take])
    maps = page.widget("maps", "pair-map", widgets.map_data(view))
    return [chosen, maps, rule, page.widget("take", "pair-take", take)]


def _features(run: ReportRun, page: Page) -> list[Part]:
    analyses = run.analyses
    profiles = analyses_json(analyses)["progress"]
    medians = analyses.trajectories
    parts = trajectory_and_progress(page, analyses.takes, medians, profiles, lines=SHOWN)
    if analyses.maps is not None:
        parts += ["### Maps", *map_parts(page, "maps", analyses.maps)]
    return parts


def _classes(run: ReportRun, page: Page) -> list[Part]:
    parts: list[Part] = []
    for probe in run.results.probes:
        before, after = (run.results.cell(probe, name) for name in SHOWN)
        if before and after:
            gains = class_gains(before.statistics, after.statistics, run.config)
            predictions = {name: run.predictions[probe, name] for name in SHOWN}
            parts.append(f"### {escaped(probe)}: class accuracy, `pjepa` - `raw`")
            parts += class_parts(page, probe, gains, predictions, run.classes, run.config)
    return parts


def _provenance(run: ReportRun) -> list[Part]:
    parts: list[Part] = []
    for probe in run.results.probes:
        if len(run.results.probes) > 1:
            parts.append(f"### Probe {escaped(probe)}")
        parts += markdown.background(run.results, probe)
    return [*parts, *origin_parts(run.origin)]


# The report's folder: the page, report.md, numbers, timelines and the tables of `dvc plots`.

TIMELINES = "timelines"


def write_report(run: ReportRun, out: Path) -> None:
    """Write the folder `out` whole; tables of `dvc plots` show the first probe, timelines all."""
    with atomic_folder(out) as folder:
        (folder / TIMELINES).mkdir()
        chosen = chosen_takes(run.gains(), run.config.timelines)
        drawn = draw_timelines(chosen, run.tracks, run.classes, folder / TIMELINES)
        write_json(folder / "report.json", report_json(run.results, run.demo))
        write_json(folder / "analyses.json", analyses_json(run.analyses))
        if run.analyses.maps is not None:
            write_json(folder / "maps.json", maps_json(run.analyses.maps))
        learned = run.predictions.get((run.results.probes[0], SHOWN[1]))
        write_plots(folder / "plots", run.analyses.profiles, learned, run.classes)
        page = run_page(run)
        pictures = [f"![{escaped(caption)}]({TIMELINES}/{n})" for n, caption in drawn.items()]
        _write_page(page, folder, ["## Timelines", *pictures] if pictures else [])


def _write_page(page: Page, folder: Path, more: Sequence[str] = ()) -> None:
    (folder / "index.html").write_text(page.html(), encoding="utf-8")
    report = page.markdown("Results", without=("timelines", "training"))
    (folder / "report.md").write_text("\n\n".join([report.rstrip(), *more]) + "\n", "utf-8")


def write_unlabelled(
    reason: str, curves: Sequence[widgets.Curve], origin: Origin, out: Path
) -> None:
    """Write the report of data without labels: what was pretrained, and why nothing is scored."""
    page = Page("P-JEPA report", "a data set without labels")
    page.data["classes"] = widgets.class_data(Classes((), None))
    where = "Features are in `data/representations/`; `models/pjepa` encodes more takes."
    page.add("results", "Results", [f"No probe was run: {escaped(reason)}.", where])
    page.add("training", "Training", training_parts(page, {"": (curves, ProbeCurve())}))
    page.add("provenance", "Provenance", origin_parts(origin))
    with atomic_folder(out) as folder:
        _write_page(page, folder)
        write_json(folder / "report.json", {"cells": {}, "skipped": reason})
