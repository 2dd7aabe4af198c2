"""How large the report page is and how fast it opens: `python -m benchmarks.report_page`.

Takes of 30 minutes at 4 tokens/s with 100 classes, the truth and three strips each, 16 pictures
with the noise of real video. The page is written by the code of `report` and opened from disk in
headless chromium; `opens` is the time from the start of the navigation until every widget is
filled. The references are the promises: 15 MB and 2 s with 200 takes. With 1,000 takes the page
samples.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import numpy as np
import typer
from PIL import Image

from benchmarks.workers import Table, row
from pjepa.core.tables import Classes
from pjepa.metrics.segmentation import take_statistics
from pjepa.report.config import ReportConfig
from pjepa.report.content import timeline_parts
from pjepa.report.figures import Track
from pjepa.report.frames import HEIGHT, Sheet, contact_sheet
from pjepa.report.gains import Gain
from pjepa.report.page import Page
from pjepa.report.results import Cell, CellStatistics, TakePrediction
from pjepa.report.widgets import class_data

TOKENS, CLASSES, SEGMENT = 7200, 100, 72
PROMISED_MB, PROMISED_S = 15.0, 2.0
STRIPS = {"raw": 0.75, "pjepa": 0.9, "history": 0.92}  # share of blocks that are right


class FakeCell:
    """What a timeline asks of a cell."""

    def __init__(self, predictions: dict[str, TakePrediction]) -> None:
        runs = {t: take_statistics(p.labels, p.predicted, 0) for t, p in predictions.items()}
        self.statistics = CellStatistics([runs], {take: take for take in predictions})


def predictions(takes: int, right: float) -> dict[str, TakePrediction]:
    """Return predictions for random steps.

    Predictions err in blocks of 2 s, which makes some 100 to 200 runs a take.
    """
    truth, guess = np.random.default_rng([0, 0]), np.random.default_rng([0, 1])
    times, made = np.arange(TOKENS) / 4, {}
    for number in range(takes):
        labels = np.repeat(truth.integers(0, CLASSES, TOKENS // SEGMENT), SEGMENT)
        wrong = np.repeat(guess.random(TOKENS // 8) > right, 8)
        predicted = np.where(wrong, np.repeat(guess.integers(0, CLASSES, TOKENS // 8), 8), labels)
        made[f"take-{number:05d}"] = TakePrediction(times, labels, predicted, guess.random(TOKENS))
    return made


def sheet(seed: int, count: int) -> Sheet:
    """Return the pictures with as much detail as footage: smooth shapes and sensor noise."""
    random = np.random.default_rng(seed)
    pictures = []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (9, 16, 3), np.uint8))
        smooth = np.asarray(coarse.resize((128, HEIGHT), Image.Resampling.BICUBIC), np.int16)
        noisy = smooth + random.normal(0, 6, smooth.shape)
        pictures.append(Image.fromarray(noisy.clip(0, 255).astype(np.uint8)))
    times = [round((number + 0.5) * TOKENS / 4 / count, 2) for number in range(count)]
    return Sheet(times, 128, HEIGHT, 8, contact_sheet(pictures))


def write_page(takes: int, path: Path) -> int:
    """Write the page and return how many takes it shows."""
    config = ReportConfig()
    rows = {name: predictions(takes, right) for name, right in STRIPS.items()}
    tracks = [Track(name, cast(Cell, FakeCell(mine)), mine) for name, mine in rows.items()]
    sheets = {take: sheet(number, config.frames) for number, take in enumerate(rows["raw"])}
    classes = Classes(tuple(f"step number {label}" for label in range(CLASSES)), 0)
    page = Page("Benchmark", data={"classes": class_data(classes)})
    gains = [Gain(take, 0.0, 1.0) for take in rows["raw"]]
    page.add("timelines", "Timelines", timeline_parts(page, tracks, gains, sheets, config, 0))
    path.write_text(page.html())
    return len(page.data["timelines"]["takes"])


def opening_seconds(browser: Any, path: Path, rounds: int) -> float:
    """Return the median seconds from navigation to the last filled widget."""
    seconds = []
    for _ in range(rounds):
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        seconds.append(page.evaluate("READY_AT") / 1000)
        page.close()
    return median(seconds)


def main(
    takes: Annotated[list[int] | None, typer.Option(help="Sizes; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times each page is opened.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print size and opening time of pages with many takes."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    table = Table()
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for count in takes or [24, 200, 1000]:
            path = Path(folder) / f"{count}.html"
            shown = write_page(count, path)
            name, size = f"{count} takes, {shown} shown", path.stat().st_size / 1e6
            table.add(f"{name}: size", row(size, PROMISED_MB, "MB"))
            seconds = opening_seconds(browser, path, rounds)
            table.add(f"{name}: opens", row(seconds, PROMISED_S, "s"))
        browser.close()
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
