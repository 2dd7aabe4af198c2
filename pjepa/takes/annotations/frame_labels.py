"""One class name per frame and line, as MS-TCN and its kin have them: `groundTruth/<video>.txt`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from pjepa.takes.annotations.rows import Annotations, Marked
from pjepa.takes.annotations.text_files import file_text
from pjepa.ui.errors import InputError

FOLDER = "groundTruth"  # other .txt files are no labels
MAPPING = "mapping.txt"  # beside that folder: the classes in their order
BUNDLES = ".bundle"  # split files


def is_frame_labels(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.parent.name.lower() == FOLDER.lower()


def read_frame_labels(path: Path, found: Annotations) -> None:
    """Add the runs of equal lines; the last line may lack its newline."""
    text = file_text(path).rstrip()
    if not text:
        raise InputError(f"{path}: no label; expected one class name per line")
    frame = 0
    for label, run in groupby(line.strip() for line in text.split("\n")):
        count = sum(1 for _ in run)
        where = f"{path}, line {frame + 1}"
        if not label:
            raise InputError(f"{where}: an empty line; expected one class name per frame")
        found.rows.append(
            Marked(where, path.stem, frame, frame + count, label, frames=True, every=True)
        )
        frame += count
