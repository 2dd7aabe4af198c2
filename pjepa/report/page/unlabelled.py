"""The report of a data set without labels: what was pretrained, and why nothing is scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.core.files import atomic_folder, write_json
from pjepa.report.figures.figures import draw_curves, read_curves
from pjepa.report.numbers.text import escaped
from pjepa.report.page.page import Page, PageSection, Widget, page_html
from pjepa.report.page.provenance import Origin, origin_parts
from pjepa.report.page.widgets import curve_data


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
