"""Tables and pictures of docs/results.md from a run: `python -m benchmarks.demo_tables`.

Reads results/report/ and rewrites the text between the two marks of the page; the pictures go to
docs/images/. No reference: it copies what `dvc repro` measured.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from pjepa.tools import paths
from pjepa.ui.console import InputError

BEGIN, END = "<!-- begin: python -m benchmarks.demo_tables -->", "<!-- end -->"
PICTURES = {
    "summary.png": "summary.png",
    "pair.png": "pair.png",
    "progress.png": "progress.png",
    "timelines/median.png": "timeline.png",
}


# Parts of the report that the page leaves to it: from this line to the next heading.
LEFT_OUT = (
    "All other differences:",
    "### What each representation is",
    "### What each representation was given",
    "### The supplement's 30-epoch fit",
    "## t-SNE",
    "## Classes, linear probe",
    "## Pictures",
)


def report_tables(text: str) -> str:
    """Return the report without its title and what is left out, headings one level down."""
    lines, shown = [], True
    for line in text.partition("\n\n")[2].splitlines():
        if line.startswith("#") or line in LEFT_OUT:
            shown = line not in LEFT_OUT
        if shown:
            lines.append(f"#{line}" if line.startswith("#") else line)
    return "\n".join(lines).strip()


def rewritten(page: str, tables: str) -> str:
    """Return the page with new tables between its marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise InputError(f"docs/results.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main(
    page: Annotated[Path, typer.Option(help="The page to rewrite.")] = Path("docs/results.md"),
    images: Annotated[Path, typer.Option(help="Where pictures go.")] = Path("docs/images"),
) -> None:
    """Rewrite the page from results/report/."""
    tables = report_tables((paths.REPORT / "report.md").read_text())
    page.write_text(rewritten(page.read_text(), tables))
    for source, name in PICTURES.items():
        if (paths.REPORT / source).exists():
            shutil.copyfile(paths.REPORT / source, images / name)
    print(f"{page}: rewritten from {paths.REPORT}")


if __name__ == "__main__":
    typer.run(main)
