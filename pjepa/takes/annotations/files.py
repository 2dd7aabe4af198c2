"""Label files of every format that is read, found by their endings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pjepa.takes.annotations.elan import read_elan
from pjepa.takes.annotations.label_studio import CONFIG, is_label_studio, read_label_studio
from pjepa.takes.annotations.rows import (
    BUNDLES,
    MAPPING,
    Annotations,
    is_frame_labels,
    json_list,
    read_csv,
    read_frame_labels,
    read_json_rows,
    read_vtt,
)
from pjepa.ui.console import InputError

SUFFIXES = (".csv", ".tsv", ".json", ".eaf", ".vtt")


def read_annotations(
    path: Path, tier: str | None = None, frame_rate: float | None = None
) -> Annotations:
    """Return the rows of one file, or of every annotation file of a folder."""
    annotations = Annotations()
    for file in _files(path):
        first = len(annotations.rows)
        _read(file, tier, frame_rate, annotations)
        if path.is_dir():
            folder = file.parent.relative_to(path).as_posix()
            annotations.rows[first:] = [
                replace(row, folder=folder) for row in annotations.rows[first:]
            ]
    return annotations


def _read(file: Path, tier: str | None, frame_rate: float | None, annotations: Annotations) -> None:
    """Add the rows of one file."""
    if is_frame_labels(file):
        read_frame_labels(file, annotations)
    elif file.suffix.lower() == ".eaf":
        read_elan(file, tier, annotations)
    elif file.suffix.lower() == ".vtt":
        read_vtt(file, annotations)
    elif file.suffix.lower() != ".json":
        read_csv(file, annotations)
    elif is_label_studio(values := json_list(file)):
        read_label_studio(file, values, frame_rate, annotations)
    else:
        read_json_rows(file, values, annotations)


def matters(path: Path) -> bool:
    """Return whether a file beside own videos holds annotations, or says how to read them."""
    return _is_annotation(path) or path.suffix.lower() in (CONFIG, BUNDLES) or path.name == MAPPING


def _is_annotation(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES or is_frame_labels(path)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _is_annotation(file))
        if files:
            return files
        raise InputError(
            f"{path}: no annotation file ({', '.join(SUFFIXES)}, or groundTruth/*.txt) in it"
        )
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; set data.folder.labels to the annotations inside the folder, "
            "or to nothing if there are none"
        )
    if not _is_annotation(path):
        raise InputError(f"{path}: expected one of {', '.join(SUFFIXES)}")
    return [path]
