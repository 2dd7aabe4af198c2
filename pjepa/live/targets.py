"""Checks of output paths before the work starts. Light to import."""

from __future__ import annotations

import os
from pathlib import Path

from pjepa.ui.errors import InputError


def check_file(path: Path) -> None:
    """Raise if the file cannot be written; create its folder."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    _check_writable(path)


def check_new_folder(path: Path) -> None:
    """Raise if the folder is not empty: it may hold videos, or predictions corrected by hand."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: exists and is not empty; name a new folder")
    _check_writable(path)


def _check_writable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written; choose another place")
