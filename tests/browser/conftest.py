"""A real browser: Debian's chromium, driven by playwright. Without one the tests are skipped."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import HOSTILE, write_project

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no chromium on this machine (on Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox"]
        opened = driver.chromium.launch(executable_path=program, args=arguments, timeout=0)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def report(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that the stage writes for the small project, whose labels are hostile."""
    from stages.report import run

    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project()
        run()
    return folder / "results" / "report" / "index.html"


@pytest.fixture(scope="session")
def compared(report: Path) -> Path:
    """The page of two experiments: the small project beside itself, under a hostile name."""
    from pjepa.report.frames import pictures_store
    from pjepa.tools.compare.compare import compare_experiments
    from pjepa.tools.compare.experiments import read_details, read_experiment
    from pjepa.tools.compare.page import comparison_page

    file = report.with_name("compared.html")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(report.parents[2])
        first = read_experiment("workspace")
        found = compare_experiments([first, replace(first, name=HOSTILE, commit="other")])
        keys = [(cell.probe, cell.representation) for cell in found.pooled.cells]
        details = dict.fromkeys(("workspace", HOSTILE), read_details("workspace", keys))
        text = comparison_page(found, details, pictures_store()).html()
        file.write_text(text, encoding="utf-8")
    return file
