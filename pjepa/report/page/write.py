"""The report's folder: the page, report.md, numbers, pictures and the tables of `dvc plots`."""

from __future__ import annotations

from pathlib import Path

from pjepa.core.files import atomic_folder, write_json
from pjepa.report.figures.analysis_figures import (
    draw_class_gains,
    draw_confusion,
    draw_maps,
    draw_pair,
    draw_progress,
)
from pjepa.report.figures.figures import draw_curves, draw_probe_curve, draw_summary
from pjepa.report.figures.timelines import draw_timelines
from pjepa.report.numbers.analyses import SHOWN, analyses_json
from pjepa.report.numbers.confusable import class_confusion
from pjepa.report.numbers.gains import class_gains, f1_by_length
from pjepa.report.numbers.maps import maps_json
from pjepa.report.numbers.plots import write_plots
from pjepa.report.numbers.tables import report_json
from pjepa.report.page.analyses_markdown import (
    class_gains_markdown,
    lengths_markdown,
    paths_markdown,
    trajectory_markdown,
    zoom_markdown,
)
from pjepa.report.page.content import ReportRun, run_page
from pjepa.report.page.markdown import report_markdown
from pjepa.report.page.page import page_html

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
