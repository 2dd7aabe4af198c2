"""The report of a data set without labels: what was pretrained, and why nothing is scored."""

from __future__ import annotations

from pathlib import Path

from pjepa.report.figures import draw_curves, read_curves
from pjepa.work import whole_folder, write_json


def write_unlabelled(why: str, pretrain: Path, out: Path) -> None:
    """Writes report.md, report.json and the training curves to the folder `out`."""
    with whole_folder(out) as folder:
        lines = ["# Results", f"No probe was run: {why}."]
        lines.append("Features are in `data/representations/`; `models/pjepa` encodes more takes.")
        curves = read_curves(pretrain)
        if curves:
            draw_curves(curves, folder / "curves.png")
            lines.append("![Training curves](curves.png)")
        (folder / "report.md").write_text("\n\n".join(lines) + "\n")
        write_json(folder / "report.json", {"cells": {}, "skipped": why})
