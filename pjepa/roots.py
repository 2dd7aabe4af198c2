"""Where data lives on this machine: an environment variable or `local.yaml`, never params.

Artifacts hold relative paths only. A name inside a data file that leaves its root (`..`, or an
absolute one) is refused; links that a user put into the root are followed.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Literal

import yaml

from pjepa.errors import InputError

DATA_ROOT = "PJEPA_DATA_ROOT"
LOCAL = Path("local.yaml")  # git-ignored; `data_root: /where/the/data/is`
Root = Literal["project", "data"]


def project_root() -> Path:
    """The main project folder, also from the copy that a queued experiment runs in."""
    return Path(os.environ.get("DVC_ROOT", "."))


def data_root() -> Path:
    """`PJEPA_DATA_ROOT`, else `data_root` of local.yaml, else the project folder."""
    if given := os.environ.get(DATA_ROOT):
        return Path(given).expanduser()
    local = project_root() / LOCAL
    if not local.is_file():
        return project_root()
    try:
        values = yaml.safe_load(local.read_text()) or {}
    except yaml.YAMLError as error:
        raise InputError(f"{LOCAL}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict) or not isinstance(values.get("data_root", ""), str):
        raise InputError(f"{LOCAL}: expected one line `data_root: FOLDER`, found {values!r}")
    return project_root() / Path(values.get("data_root", "")).expanduser()


def rooted(root: Root, relative: str) -> Path:
    """The file of a relative name under its root; `project` is the folder a stage runs in."""
    return inside(Path() if root == "project" else data_root(), relative, f"the {root} folder")


def inside(folder: Path, relative: str, what: str = "its folder") -> Path:
    """`folder / relative`; a name that would leave the folder is refused."""
    name = PurePosixPath(relative)
    if not relative or name.is_absolute() or ".." in name.parts or "\0" in relative:
        raise InputError(f"{relative!r}: expected a path inside {what}, not out of it")
    return folder / name
