"""Tables and pictures of the docs from a run: `python -m benchmarks.demo_tables`.

Rewrites the text between the two marks of docs/results.md from results/report/. Into docs/images/
go a timeline, README's picture (frames of the test take at the median of the gain, and what a
linear probe reads from it), a contact sheet of the videos, and, with chromium on the machine, the
pair of the page. No reference: it shows what `dvc repro` measured.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.figure import Figure

from pjepa.core.tables import Classes, VideoRow, read_classes, read_segments, read_videos
from pjepa.report.figures import Strip, draw_strip, house_style
from pjepa.report.gains import chosen_takes, take_gains
from pjepa.report.results import read_cell, read_predictions
from pjepa.tools import paths
from pjepa.ui.console import InputError
from pjepa.video.reader import open_video

BEGIN, END = "<!-- begin: python -m benchmarks.demo_tables -->", "<!-- end -->"
FRAMES, ROWS = 8, 3  # of the picture of a take; of the contact sheet, which has 9 columns
SECTION = "#pair"  # of the page, as a picture
LEFT_OUT = (  # sections of the report that the page leaves to it
    "All other differences",
    "The demo's proof",
    "Provenance",
    "What each representation is",
    "Feature space",
    "Progress",
    "Maps",
    "Classes",
    "What each representation was given",
    "The supplement's 30-epoch fit",
    "Code",
    "Data",
    "Timelines",
)


def report_tables(text: str) -> str:
    """Return the report without its title and what is left out, headings one level down."""
    lines, hidden = [], 0  # the level of the section that is left out
    for line in text.partition("\n\n")[2].splitlines():
        level = len(line) - len(line.lstrip("#"))
        if level and (not hidden or level <= hidden):
            hidden = level if line[level:].strip() in LEFT_OUT else 0
        if not hidden:
            lines.append(f"#{line}" if level else line)
    return "\n".join(lines).strip()


def rewritten(page: str, tables: str) -> str:
    """Return the page with new tables between its marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise InputError(f"docs/results.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def draw_take(classes: Classes, videos: dict[str, VideoRow], path: Path) -> None:
    """Draw frames of the median take, the truth, and the probe on raw and on P-JEPA's tokens."""
    cells = {n: read_cell("linear", n, paths.cell("linear", n)) for n in ("raw", "pjepa")}
    gain = chosen_takes(take_gains(*cells.values()), 2)[-1].gain  # the median
    take = gain.take_id
    tokens = {n: read_predictions(cell.folder)[take] for n, cell in cells.items()}
    first = tokens["raw"]
    strips = [
        Strip("truth", first.labels),
        Strip(f"raw tokens: {gain.before:.0f} % right", first.predicted),
        Strip(f"P-JEPA: {gain.after:.0f} % right", tokens["pjepa"].predicted),
    ]
    middles = first.times[0] + (np.arange(FRAMES) + 0.5) * np.ptp(first.times) / FRAMES
    with open_video(videos[take].path) as reader:
        frames = np.concatenate(list(reader.frames(middles)), axis=1)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(4, 1, height_ratios=(2.4, 1, 1, 1))
    axes[0].imshow(frames, aspect="auto")
    axes[0].axis("off")
    for axis, strip in zip(axes[1:], strips, strict=True):
        draw_strip(axis, strip, first.times, first.step_s, classes.background)
        axis.tick_params(labelbottom=axis is axes[-1], labelsize=8)
    axes[-1].set_xlabel("seconds", fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def draw_sheet(classes: Classes, videos: dict[str, VideoRow], path: Path) -> None:
    """Draw the middle frame of the first segments of a few takes, with the step's name."""
    segments = read_segments(paths.SEGMENTS_TABLE)
    figure = Figure(figsize=(12.15, 1.6 * ROWS))
    axes = figure.subplots(ROWS, 9, squeeze=False)
    for row, (take, video) in zip(axes, videos.items(), strict=False):
        first = segments[segments["take_id"] == take].head(len(row))
        middles = ((first["start_s"] + first["end_s"]) / 2).to_numpy(np.float64)
        with open_video(video.path) as reader:
            frames = list(reader.frames(middles))
        for axis in row:
            axis.axis("off")
        for axis, frame, time, label in zip(row, frames, middles, first["label"], strict=False):
            axis.imshow(frame)
            axis.set_title(f"{time:.0f} s: {classes.names[label]}", fontsize=6.5)
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=85, metadata={"Software": None})


def section_picture(page: Path, program: str, path: Path) -> None:
    """Write a section of the page as a browser shows it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 1600})
        tab.goto(page.absolute().as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        if tab.locator(SECTION).count():
            tab.locator(f"{SECTION} canvas").last.scroll_into_view_if_needed()
            tab.wait_for_timeout(500)
            tab.locator(SECTION).screenshot(path=path, style="nav { display: none }")
        browser.close()


def main(
    page: Annotated[Path, typer.Option(help="The page to rewrite.")] = Path("docs/results.md"),
    images: Annotated[Path, typer.Option(help="Where pictures go.")] = Path("docs/images"),
) -> None:
    """Rewrite the page and the pictures from results/ and data/."""
    tables = report_tables((paths.REPORT / "report.md").read_text())
    page.write_text(rewritten(page.read_text(), tables))
    classes = read_classes(paths.CLASSES)
    videos = {video.take_id: video for video in read_videos(paths.VIDEOS_TABLE)}
    timeline = paths.REPORT / "timelines/median.png"
    if timeline.exists():  # not with one take
        shutil.copyfile(timeline, images / "timeline.png")
    draw_sheet(classes, videos, images / "demo.png")
    with house_style():
        draw_take(classes, videos, images / "take.png")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program:
        section_picture(paths.REPORT / "index.html", program, images / "pair.png")
    print(f"{page}, {images}: rewritten from {paths.REPORT}")


if __name__ == "__main__":
    typer.run(main)
