"""Folders of the package import in one direction, and all are on the map."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.pipeline.imports import ROOT, imported

FILES = sorted(f.relative_to(ROOT).as_posix() for f in (ROOT / "pjepa").rglob("*.py"))


def folder_graph() -> dict[str, set[str]]:
    """Folder: the other folders it imports from. The package's own lazy names are left out."""
    graph: dict[str, set[str]] = {}
    for file in FILES:
        here = Path(file).parent.as_posix()
        others = {Path(other).parent.as_posix() for other in imported(file)} - {here, "pjepa"}
        if here != "pjepa":
            graph.setdefault(here, set()).update(others)
    return graph


def test_folders_import_in_one_direction() -> None:
    try:
        list(TopologicalSorter(folder_graph()).static_order())
    except CycleError as error:
        pytest.fail(f"folders import each other in a circle: {' -> '.join(error.args[1])}")


def test_only_stages_and_tools_know_the_paths_of_stages() -> None:
    users = [f for f in FILES if "pjepa/tools/paths.py" in imported(f)]
    assert [f for f in users if not f.startswith("pjepa/tools/")] == []


def test_the_map_of_the_tree_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {Path(file).parts[1] for file in FILES if len(Path(file).parts) > 2}
    assert [name for name in sorted(folders) if f"`{name}/`" not in page] == []
