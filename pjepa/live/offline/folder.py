"""The folder that `pjepa predict` writes: which videos are done, and by what.

A folder belongs to one model and one set of options, noted in `.pjepa/`. A video is done when its
note is there, which comes after its files; a killed run therefore begins with the first video that
is not whole. Files of finished videos are never written again, so corrections by hand stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pjepa.core.files import read_object, write_json
from pjepa.ui.errors import InputError

WORK, VIDEOS = ".pjepa", "videos"


def is_ours(folder: Path) -> bool:
    """Return whether an earlier run wrote this folder."""
    return _made_by(folder).is_file()


def begin_folder(folder: Path, made_by: Mapping[str, Any]) -> None:
    """Note what this folder is made by; raise if it was something else."""
    if not is_ours(folder):
        write_json(_made_by(folder), dict(made_by))
        return
    before = read_object(_made_by(folder))
    changed = [name for name in made_by if made_by[name] != before.get(name)]
    if changed:
        raise InputError(
            f"{folder}: holds predictions with another {' and '.join(changed)}; name a new folder"
        )


def finished(folder: Path, name: str, digest: str) -> dict[str, Any] | None:
    """Return the note of a video that is done; None if it is not, or the file is another now."""
    file = _note(folder, name)
    note = dict(read_object(file)) if file.is_file() else {}
    return note if note.get("sha256") == digest else None


def finish(folder: Path, name: str, note: Mapping[str, Any]) -> None:
    """Note that a video's files are written."""
    write_json(_note(folder, name), dict(note))


def notes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the notes of all finished videos by name."""
    place = folder / WORK / VIDEOS
    files = sorted(place.rglob("*.json"))
    return {f.relative_to(place).as_posix().removesuffix(".json"): read_object(f) for f in files}


def _made_by(folder: Path) -> Path:
    return folder / WORK / "made_by.json"


def _note(folder: Path, name: str) -> Path:
    return folder / WORK / VIDEOS / f"{name}.json"
