"""What own videos need to begin: a CSV to fill in, and the params that read it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.errors import InputError
from pjepa.takes.annotations import FIELDS
from pjepa.takes.videos import VIDEO_SUFFIXES, video_files

LABELS = "labels.csv"


@dataclass(frozen=True)
class Place:
    """A folder of videos under a data root."""

    root: Path
    path: str


def place_of(folder: Path, root: Path) -> Place:
    """The folder under the present data root if it is there, else under its own parent."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not video_files(folder):
        raise InputError(f"{folder}: no video in it ({', '.join(VIDEO_SUFFIXES)})")
    if folder.is_relative_to(root.resolve()):
        return Place(root, folder.relative_to(root.resolve()).as_posix())
    return Place(folder.parent, folder.name)


def starter_csv(folder: Path) -> str:
    """One row per video without a segment: add rows with start, end and label, or leave it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["video", "start", "end", "label", *FIELDS])
    for name in video_files(folder):
        writer.writerow([name, *[""] * (3 + len(FIELDS))])
    return text.getvalue()


def starter_params(values: dict[str, Any], path: str) -> dict[str, Any]:
    """Params that read the folder; without labels there are no annotated segments to use."""
    data = values.get("data") or {}
    folder = {**(data.get("folder") or {}), "path": path, "labels": LABELS}
    pjepa = {**(values.get("pjepa") or {}), "attention": "block_causal", "segments": "fixed"}
    return {**values, "data": {**data, "source": "folder", "folder": folder}, "pjepa": pjepa}
