"""A real browser: Debian's chromium, driven by playwright. Without one the tests are skipped."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import write_project

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no chromium on this machine (on Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def report(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that the stage writes for the small project, whose labels are hostile."""
    from stages.report import run

    folder, before = tmp_path_factory.mktemp("pages"), Path.cwd()
    os.chdir(folder)
    try:
        write_project()
        run()
    finally:
        os.chdir(before)
    return folder / "results" / "report" / "index.html"
