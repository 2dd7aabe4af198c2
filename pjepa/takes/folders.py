"""Folders of sources below the data root."""

from __future__ import annotations

from pathlib import Path

from pjepa.core.roots import inside
from pjepa.takes.config import MstcnConfig
from pjepa.ui.errors import InputError


def below(folder: str, name: str) -> str:
    """Return a name below a source's folder, relative to the data root."""
    return name if folder == "." else f"{folder}/{name}"


def set_folder(own: MstcnConfig, root: Path) -> str:
    """Return the set's folder relative to the data root: below `path`, or below `path`/data."""
    places = [below(own.path, place) for place in (own.dataset, f"data/{own.dataset}")]
    found = [place for place in places if inside(root, place, "the data root").is_dir()]
    if not found:
        raise InputError(
            f"{root}: neither {' nor '.join(places)} in it; set data.mstcn.path to the folder with "
            f"{own.dataset}, and PJEPA_DATA_ROOT or data_root in local.yaml"
        )
    return found[0]
