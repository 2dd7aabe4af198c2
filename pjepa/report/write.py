"""The report's folder: report.md, report.json and the pictures, written whole."""

from __future__ import annotations

from pathlib import Path

from pjepa.report.figures import draw_curves, draw_summary, read_curves
from pjepa.report.markdown import report_markdown
from pjepa.report.proof import DemoNumbers
from pjepa.report.results import Results
from pjepa.report.tables import report_json
from pjepa.report.timelines import draw_timelines
from pjepa.takes.manifest import Classes
from pjepa.work import whole_folder, write_json


def write_report(
    results: Results,
    demo: DemoNumbers | None,
    classes: Classes,
    pretrain: Path,
    timelines: int,
    out: Path,
) -> None:
    """Writes the folder `out`; pictures show the first probe."""
    cells = results.of_probe(results.probes[0])
    with whole_folder(out) as folder:
        pictures = {"summary.png": "Accuracy of every representation"}
        draw_summary(cells, demo, folder / "summary.png")
        by_name = {cell.representation: cell for cell in cells}
        pictures |= draw_timelines(by_name, classes, timelines, folder)
        curves = read_curves(pretrain)
        if curves:
            draw_curves(curves, folder / "curves.png")
            pictures["curves.png"] = "Training curves"
        write_json(folder / "report.json", report_json(results, demo))
        (folder / "report.md").write_text(report_markdown(results, demo, pictures))
