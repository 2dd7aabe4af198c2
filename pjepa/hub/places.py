"""Where downloaded files are kept and looked for, so that params hold no machine path.

A name is looked for in the working folder, the data root, its `checkpoints/`, our cache and torch
hub's cache, in this order.
"""

from __future__ import annotations

import os
from pathlib import Path

from pjepa.core.roots import DATA_ROOT, data_root
from pjepa.ui.errors import InputError

CACHE = "PJEPA_CACHE"
CHECKPOINTS = "checkpoints"


def cache_root() -> Path:
    """Return `PJEPA_CACHE`, else `pjepa` in `XDG_CACHE_HOME` or in `~/.cache`."""
    if given := os.environ.get(CACHE):
        return Path(given).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "pjepa"


def download_folder() -> Path:
    """Return the folder for downloaded weights."""
    return cache_root() / CHECKPOINTS


def checkpoint_folders() -> list[Path]:
    """Return every folder in which a file's bare name is looked for, first choice first."""
    from torch.hub import get_dir

    hub = Path(get_dir()) / CHECKPOINTS  # torch reads TORCH_HOME itself
    return [Path(), data_root(), data_root() / CHECKPOINTS, download_folder(), hub]


def found_file(*names: str) -> Path | None:
    """Return the first name that is a file in one of the folders; full paths are used as is."""
    for name in names:
        for folder in checkpoint_folders():
            path = folder / Path(name).expanduser()
            if path.is_file():
                return path
    return None


def checkpoint_file(name: str) -> Path:
    """Return the file of a name; raise an error that says where to put a missing one."""
    if path := found_file(name):
        return path
    raise InputError(
        f"patches.checkpoint: no file {name}; {placing(Path(name).name)} (docs/backbones.md)"
    )


def placing(file: str) -> str:
    """Return a hint on where to put a file so that it is found."""
    root = os.environ.get(DATA_ROOT) or f"${DATA_ROOT}"
    return f"put it at {download_folder() / file} or {root}/{CHECKPOINTS}/{file}"
