"""The page of a run, section by section: its text and the data of its widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pjepa.core.tables import Classes
from pjepa.curve.file import ProbeCurve
from pjepa.report.config import ReportConfig
from pjepa.report.figures.figures import Curve
from pjepa.report.figures.timelines import Track
from pjepa.report.numbers.analyses import SHOWN, Analyses, analyses_json
from pjepa.report.numbers.confusable import class_confusion
from pjepa.report.numbers.gains import (
    ChosenTake,
    Gain,
    class_gains,
    f1_by_length,
    take_gains,
)
from pjepa.report.numbers.headline import about_markdown, headline
from pjepa.report.numbers.predictions import Predictions
from pjepa.report.numbers.proof import DemoNumbers
from pjepa.report.numbers.results import Results
from pjepa.report.numbers.streaming import overview_markdown
from pjepa.report.numbers.tables import by_privilege
from pjepa.report.numbers.text import escaped
from pjepa.report.page.analyses_markdown import (
    lengths_markdown,
    trajectory_markdown,
    zoom_markdown,
)
from pjepa.report.page.frames import Sheet
from pjepa.report.page.markdown import (
    background_parts,
    conditions,
    other_differences,
    proof_markdown,
    score_parts,
)
from pjepa.report.page.page import (
    Beside,
    Folded,
    Page,
    PageSection,
    Part,
    Widget,
    page_html,
)
from pjepa.report.page.parts import Draft, map_parts, timeline_parts, training_parts
from pjepa.report.page.provenance import Origin, dated, origin_parts
from pjepa.report.page.widgets import (
    class_data,
    class_gain_data,
    confusion_data,
    length_data,
    map_data,
    progress_data,
    score_data,
    sheet_data,
    take_data,
)

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
