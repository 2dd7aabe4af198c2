"""A start for own videos: a CSV to fill in, and the params that read it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.core.section import read_params
from pjepa.core.text import sheet_cell
from pjepa.patches.checkpoint import RANDOM, weights_file
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.pooler.config import PoolerKind
from pjepa.takes.annotations.files import matters, read_annotations
from pjepa.takes.annotations.rows import FIELDS
from pjepa.tools.params import Params, validated
from pjepa.tools.presets import preset_values
from pjepa.ui.console import InputError
from pjepa.video.files import VIDEO_SUFFIXES, video_files

LABELS = "labels.csv"
PRESET = "own-videos"
# The action pooler (Eq. 1) needs several cells to attend to, and takes may have any length.
POOLERS: dict[PoolerKind, dict[str, dict[str, Any]]] = {
    "mean": {"patches": {"grid": 1}, "pooler": {"kind": "mean"}},
    "action": {"patches": {"grid": 4}, "pooler": {"kind": "action", "scope": "take"}},
}


@dataclass(frozen=True)
class Place:
    """A folder of videos under a data root."""

    root: Path
    path: str


def place_of(folder: Path, root: Path) -> Place:
    """Return the folder under the current data root if it is there, else under its own parent."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not video_files(folder):
        raise InputError(f"{folder}: no video in it ({', '.join(VIDEO_SUFFIXES)})")
    if folder.is_relative_to(root.resolve()):
        return Place(root, folder.relative_to(root.resolve()).as_posix())
    return Place(folder.parent, folder.name)


def starter_csv(folder: Path) -> str:
    """Return one row per video, without segments; rows with start, end and label can be added."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["video", "start", "end", "label", *FIELDS])
    for name in video_files(folder):
        writer.writerow([sheet_cell(name), *[""] * (3 + len(FIELDS))])
    return text.getvalue()


def starter_params(path: str, pooler: PoolerKind | None) -> Params:
    """Return the preset for own videos, reading this folder.

    Params that read the folder already are the user's and stay, but for the pooler asked for.
    """
    values = read_params()
    own = (values.get("data") or {}).get("folder") or {}
    if own.get("path") != path or values["data"].get("source") != "folder":
        values = preset_values(PRESET).model_dump(mode="json")
        values["data"]["folder"] |= {"path": path, "labels": LABELS}
    changes = {} if pooler is None else POOLERS[pooler]
    for section, change in changes.items():
        values[section] = {**(values.get(section) or {}), **change}
    return validated(values)


def labelled_videos(folder: Path, params: Params) -> int:
    """Return how many videos have a labelled segment."""
    own = params.data.folder
    if own.labels is None or not (folder / own.labels).exists():
        return 0
    rows = read_annotations(folder / own.labels, own.tier, own.frame_rate).rows
    return len({row.video for row in rows if row.label is not None})


def other_annotations(folder: Path) -> list[str]:
    """Return files beside the videos that look like annotations, but for `labels.csv`."""
    found = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")))
    return [name for name in found if matters(Path(name)) and name != LABELS]


# A setting with which everything can be tried before weights are fetched: the demo's backbone.

UNTRAINED: dict[str, str | int] = {
    "backbone": "vjepa2_1_vit_tiny",
    "checkpoint": RANDOM,
    "frames_per_window": 16,
    "crop": 96,
}


def missing_weights(config: PatchesConfig) -> str | None:
    """Return why the backbone's weights cannot be loaded, and how to get them; None if they can.

    Models of the hubs fetch theirs when they are loaded.
    """
    if config.checkpoint == RANDOM or config.backbone.startswith((TIMM, HF)):
        return None
    try:
        weights_file(config.backbone, config.checkpoint)
    except InputError as error:
        return str(error)
    return None


def as_settings() -> str:
    """Return the setting for `dvc exp run`."""
    return " ".join(f"-S patches.{name}={value}" for name, value in UNTRAINED.items())


def as_options() -> str:
    """Return the setting for `pjepa extract` and `pjepa plan`."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in UNTRAINED.items())
