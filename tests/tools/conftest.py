"""The small project of the report's tests, for the tools that read one, and a folder of presets."""

import shutil
from pathlib import Path

import pytest

from tests.report.conftest import built, project

__all__ = ["built", "project"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the presets of the project."""
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    monkeypatch.chdir(tmp_path)
    return tmp_path
