"""Places to write to, checked before the work and not after it. Light to import."""

from __future__ import annotations

import os
from pathlib import Path

from pjepa.errors import InputError


def check_file(path: Path) -> None:
    """A file that can be written; its folder is made."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    _check_writable(path)


def check_new_folder(path: Path) -> None:
    """Never in place of what is there: videos, or predictions that were corrected by hand."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: is there and not empty; name a new folder")
    _check_writable(path)


def _check_writable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written; choose another place")
