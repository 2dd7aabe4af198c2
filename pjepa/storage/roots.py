"""Where data lives on this machine: an environment variable or `local.yaml`, never params.

Artifacts hold relative paths only. A name inside a data file that leaves its root (`..`, or an
absolute path) is an error; links that a user put into the root are followed.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pjepa.storage.reading import read_yaml
from pjepa.ui.console import InputError

DATA_ROOT = "PJEPA_DATA_ROOT"
LOCAL = Path("local.yaml")  # git-ignored
KNOWN = ("data_root", "machine")  # its keys
Root = Literal["project", "data"]


def project_root() -> Path:
    """Return the main project folder, also inside the copy that a queued experiment uses."""
    return Path(os.environ.get("DVC_ROOT", "."))


def data_root() -> Path:
    """Return `PJEPA_DATA_ROOT`, else `data_root` of local.yaml, else the project folder."""
    if given := os.environ.get(DATA_ROOT):
        return Path(given).expanduser()
    given = local_values().get("data_root", "")
    if not isinstance(given, str):
        raise InputError(f"{LOCAL}: data_root: expected a folder, found {given!r}")
    return project_root() / Path(given).expanduser()


def local_values() -> dict[str, Any]:
    """Return the values of local.yaml; empty if there is no such file."""
    local = project_root() / LOCAL
    if not local.is_file():
        return {}
    values = read_yaml(local) or {}
    unknown = sorted(set(values) - set(KNOWN)) if isinstance(values, dict) else [repr(values)]
    if unknown:
        raise InputError(f"{LOCAL}: expected {' or '.join(KNOWN)}, found {', '.join(unknown)}")
    return values


def rooted(root: Root, relative: str) -> Path:
    """Return the path of a relative name under its root.

    `project` is the folder a stage runs in.
    """
    return inside(Path() if root == "project" else data_root(), relative, f"the {root} folder")


def inside(folder: Path, relative: str, what: str = "its folder") -> Path:
    """Return `folder / relative`; raise an error if the name leaves the folder."""
    name = PurePosixPath(relative)
    if not relative or name.is_absolute() or ".." in name.parts or "\0" in relative:
        raise InputError(f"{relative!r}: expected a path inside {what}, not out of it")
    return folder / name
