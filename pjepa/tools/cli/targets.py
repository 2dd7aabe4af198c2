"""What a tool may write over: its own earlier output of the same kind, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pjepa.ui.console import InputError

TargetKind = Literal[
    "steps", "summary", "state", "check", "comparison", "page", "sheet", "port", "study"
]
LOOK = 65_536  # bytes of the beginning that tell what a file is
PUBLISHED = {"model.safetensors", "config.json", "README.md"}


def _is_step(line: bytes) -> bool:
    try:
        step = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(step, dict) and {"start", "end", "label"} <= step.keys()


def _with_key(key: str) -> Callable[[bytes], bool]:
    """Return a test for JSON whose beginning has this key: `write_json` sorts them."""
    return lambda start: start.lstrip().startswith(b"{") and f'"{key}":'.encode() in start


OWN: dict[TargetKind, tuple[str, Callable[[bytes], bool]]] = {
    "steps": ("file of steps", lambda start: _is_step(start.partition(b"\n")[0])),
    "summary": ("summary", _with_key("cache_bytes")),
    "state": ("state of a stream", _with_key("pooler and probe")),
    "check": ("result of a check", _with_key("findings")),
    "comparison": ("comparison", _with_key("arms")),
    "page": ("comparison", lambda start: bool(re.search(rb"<title>[^<]* against ", start))),
    "sheet": ("contact sheet", lambda start: b"\x89PNG" in start[:4] and b"pjepa" in start),
    "port": ("port of weights", lambda start: start[8:9] == b"{" and b"weights_id" in start),
    "study": ("study", _with_key("rows")),
}


def check_target(path: Path | None, kind: TargetKind, *inputs: Path) -> None:
    """Refuse to write `kind` over an input, or over a file that no tool of this kind wrote."""
    if path is None or not path.exists():
        return
    for given in inputs:
        if given.exists() and path.samefile(given):
            raise InputError(f"{path}: is read by this command; choose another file to write")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file to write")
    if not path.is_file():
        return  # a pipe or a device
    with path.open("rb") as file:
        start = file.read(LOOK)
    name, is_own = OWN[kind]
    if start and not is_own(start):
        raise InputError(
            f"{path}: exists and is not an earlier {name}; remove it or choose another"
        )


def check_publication(folder: Path, encoder: Path) -> None:
    """Refuse to publish into a folder that holds anything but an earlier publication."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if folder.is_file() or folder.samefile(encoder) or (names and names != PUBLISHED):
        raise InputError(f"{folder}: exists and is not an earlier publication; name a new folder")
