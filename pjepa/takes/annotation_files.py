"""Annotation files of own videos: CSV, JSON, ELAN .eaf, WebVTT and Label Studio exports."""

from __future__ import annotations

from pathlib import Path

from pjepa.errors import InputError
from pjepa.takes.annotations import Annotations, json_list, read_csv, read_json_rows
from pjepa.takes.elan import read_elan
from pjepa.takes.label_studio import is_label_studio, read_label_studio
from pjepa.takes.webvtt import read_vtt

SUFFIXES = (".csv", ".tsv", ".json", ".eaf", ".vtt")


def read_annotations(path: Path, tier: str | None = None) -> Annotations:
    """The rows of one file, or of every annotation file of a folder."""
    found = Annotations()
    for file in _files(path):
        if file.suffix.lower() == ".eaf":
            read_elan(file, tier, found)
            continue
        if file.suffix.lower() == ".vtt":
            read_vtt(file, found)
            continue
        if file.suffix.lower() != ".json":
            read_csv(file, found)
            continue
        values = json_list(file)
        if is_label_studio(values):
            read_label_studio(file, values, found)
        else:
            read_json_rows(file, values, found)
    return found


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        if files:
            return files
        raise InputError(f"{path}: no annotation file ({', '.join(SUFFIXES)}) in it")
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; set data.folder.labels to the annotations inside the folder, "
            "or to nothing if there are none"
        )
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: expected one of {', '.join(SUFFIXES)}")
    return [path]
