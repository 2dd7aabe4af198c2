"""The folder of a set inside the folder of its source."""

from __future__ import annotations

from pathlib import Path

from pjepa.core.roots import inside
from pjepa.takes.config import MstcnConfig
from pjepa.ui.errors import InputError


def set_folder(own: MstcnConfig, root: Path) -> str:
    """Return the set's folder relative to the data root: below `path`, or below `path`/data."""
    places = [own.dataset, f"data/{own.dataset}"]
    if own.path != ".":
        places = [f"{own.path}/{place}" for place in places]
    found = [place for place in places if inside(root, place, "the data root").is_dir()]
    if not found:
        raise InputError(
            f"{root}: neither {' nor '.join(places)} in it; set data.mstcn.path to the folder with "
            f"{own.dataset}, and PJEPA_DATA_ROOT or data_root in local.yaml"
        )
    return found[0]
