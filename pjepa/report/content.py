"""The run's page, section by section: what it says and the data of its widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pjepa.config.report import ReportConfig
from pjepa.probes.curve_file import ProbeCurve
from pjepa.report.analyses import SHOWN, Analyses, analyses_json
from pjepa.report.analyses_markdown import (
    lengths_markdown,
    paths_markdown,
    trajectory_markdown,
    zoom_markdown,
)
from pjepa.report.confusable import class_confusion
from pjepa.report.figures import Curve
from pjepa.report.frames import Sheet
from pjepa.report.gains import (
    Choice,
    Gain,
    chosen_takes,
    class_gains,
    f1_by_length,
    take_gains,
)
from pjepa.report.maps import Maps
from pjepa.report.markdown import (
    background_parts,
    conditions,
    other_differences,
    proof_markdown,
    score_parts,
)
from pjepa.report.page import Folded, Page, Part, Section, Widget, page_html, script_json
from pjepa.report.predictions import Predictions
from pjepa.report.proof import DemoNumbers
from pjepa.report.provenance import Origin, origin_parts
from pjepa.report.results import Results
from pjepa.report.streaming import overview_markdown
from pjepa.report.tables import by_privilege
from pjepa.report.text import escaped
from pjepa.report.timelines import Track
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
from pjepa.takes.manifest import Classes

CHART_SHOWN = SHOWN  # lines of the progress chart at first
MEGABYTE = 1_000_000
PROBE_CURVE = (
    "Frame accuracy of a linear probe on snapshots of the encoder, fitted on train takes and "
    "scored on held-out train groups, which pretraining has not seen. `raw` is the stream itself, "
    "`random` the same encoder untrained. It only shows: nothing is chosen by it."
)
TIMELINE_SHARE = 0.6  # of the page; pictures get what is left


@dataclass(frozen=True)
class Run:
    """One finished run: everything its page is made from."""

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
        """The probes that have both raw and pjepa."""
        both = [
            self.results.cell(probe, SHOWN[0]) and self.results.cell(probe, SHOWN[1])
            for probe in self.results.probes
        ]
        return [p for p, cell in zip(self.results.probes, both, strict=True) if cell]


@dataclass
class Draft:
    """Sections and data while a page is put together."""

    sections: list[Section] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def widget(self, kind: str, key: str, value: Any) -> Widget:
        """A widget whose data is kept under `key`."""
        self.data[key] = value
        return Widget(kind, key)

    def add(self, name: str, title: str, parts: Sequence[Part]) -> None:
        """A section, unless it is empty."""
        if parts:
            self.sections.append(Section(name, title, parts))


def run_page(run: Run) -> Page:
    """The page of one run."""
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
        draft.sections.insert(1, Section("timelines", "Timelines", timelines))
    first = run.results.cells[0]
    groups = first.statistics.groups
    subtitle = (
        f"{len(groups)} takes of the {first.split} split in {len(set(groups.values()))} groups"
    )
    return Page("P-JEPA report", subtitle, draft.sections, draft.data)


def training_parts(
    draft: Draft, owners: Mapping[str, tuple[Sequence[Curve], ProbeCurve]]
) -> list[Part]:
    """Curves of pretraining and of the probe over its epochs; runs share charts, by their names."""
    logged = {name or "pretraining": curves for name, (curves, _) in owners.items() if curves}
    parts: list[Part] = [draft.widget("curves", "curves", curve_data(logged))] if logged else []
    probed = {name: curve for name, (_, curve) in owners.items() if curve.scores}
    if probed:
        chart = draft.widget("lines", "probe-curve", probe_curve_data(probed))
        parts += ["### Linear probe over epochs", PROBE_CURVE, chart]
    return parts


def run_gains(run: Run) -> list[Gain]:
    """The takes by gain of the first probe that has raw and pjepa."""
    for probe in run.pairs():
        before, after = (run.results.cell(probe, name) for name in SHOWN)
        if before and after:
            return take_gains(before, after)
    return []


def _results(run: Run, draft: Draft) -> list[Part]:
    parts: list[Part] = [conditions(run.results)]
    if len(run.results.probes) > 1:
        parts += ["### All probes, `acc`", overview_markdown(run.results)]
    for probe in run.results.probes:
        demo = run.demo if probe == run.results.probes[0] else None
        rows = score_data(by_privilege(run.results.of_probe(probe)), demo)
        parts += [f"### Probe {escaped(probe)}", draft.widget("scores", f"scores-{probe}", rows)]
        parts += score_parts(run.results, probe)
        if others := other_differences(run.results, probe):
            parts.append(Folded("All other differences", others, markdown=True))
    if run.demo is not None:
        parts += ["### The demo's proof", proof_markdown(run.results, run.demo)]
    return parts


def timeline_parts(
    draft: Draft,
    tracks: Sequence[Track],
    gains: Sequence[Gain],
    sheets: Mapping[str, Sheet],
    config: ReportConfig,
    spent: int,
) -> list[Part]:
    """Timelines of as many takes as the page may hold, then pictures; says what is left out."""
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


def _pair(run: Run, draft: Draft) -> list[Part]:
    zoom = run.analyses.zoom
    if zoom is None:
        return []
    draft.data["pair-map"] = map_data(zoom.points, zoom.labels)
    parts: list[Part] = list(zoom_markdown(zoom, run.classes, run.results.probes[0]))
    gain = next(gain for gain in run_gains(run) if gain.take_id == zoom.take)
    choice = Choice(gain, "most of the rarer of the two classes", "pair")
    take = take_data(choice, run.tracks, run.tracks[0].cell.statistics.groups[zoom.take])
    take["focus"] = [zoom.pair.first, zoom.pair.second]
    if zoom.take in run.sheets:
        take["frames"] = sheet_data(run.sheets[zoom.take])
    return [parts[0], Widget("maps", "pair-map"), parts[1], draft.widget("take", "pair-take", take)]


def _features(run: Run, draft: Draft) -> list[Part]:
    found = run.analyses
    parts: list[Part] = ["### Trajectories"]
    parts += trajectory_markdown(found.trajectories, found.takes)
    if found.profiles:
        chart = progress_data(analyses_json(found)["progress"])
        chart["hidden"] = [s["name"] for s in chart["series"] if s["name"] not in CHART_SHOWN]
        parts += [
            "### Progress",
            "Mean over takes of the progress p in bins of relative time; bands are the quartiles "
            "over takes, the dotted line even progress. Every take is measured on its own line "
            "from first to last segment, so all curves begin near 0 and end near 1.",
            draft.widget("lines", "progress", chart),
        ]
    if found.maps is not None:
        parts += ["### Maps", *map_parts(draft, "maps", found.maps)]
    return parts


def map_parts(draft: Draft, key: str, maps: Maps) -> list[Part]:
    """Maps of the same segments, and the table of the paths on them."""
    text, table = paths_markdown(maps)
    chart = map_data(maps.points, maps.labels, maps.times, maps.takes, maps.take)
    return [text, draft.widget("maps", key, chart), table]


def _classes(run: Run, draft: Draft) -> list[Part]:
    parts: list[Part] = []
    for probe in run.pairs():
        before, after = (run.results.cell(probe, name) for name in SHOWN)
        if before is None or after is None:
            continue
        gains = class_gains(before.statistics, after.statistics, run.config)
        found = {name: run.predictions[probe, name] for name in SHOWN}
        bins = f1_by_length(found, run.classes.background, run.config.length_bins)
        counts = {n: class_confusion(p, len(run.classes.names)) for n, p in found.items()}
        parts += [
            f"### {escaped(probe)}: class accuracy, `pjepa` - `raw`",
            "Share of a class's tokens that are right; lines are 95 % intervals over groups.",
            draft.widget("gains", f"gains-{probe}", class_gain_data(gains, SHOWN)),
            f"### {escaped(probe)}: F1@50 by segment length",
            "Bins hold about equally many true segments. Recall counts true segments of a bin, "
            "precision predicted ones by their own length.",
            draft.widget("lines", f"lengths-{probe}", length_data(bins)),
            lengths_markdown(bins),
            f"### {escaped(probe)}: confusion",
            draft.widget("confusion", f"confusion-{probe}", confusion_data(counts)),
        ]
    return parts


def _provenance(run: Run) -> list[Part]:
    parts: list[Part] = []
    for probe in run.results.probes:
        if len(run.results.probes) > 1:
            parts.append(f"### Probe {escaped(probe)}")
        parts += background_parts(run.results, probe)
    return [*parts, *origin_parts(run.origin)]
