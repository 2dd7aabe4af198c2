"""Hashes of files, remembered by inode, time of change and size, so that a file is read once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pjepa.core.files import write_json
from pjepa.ui.progress import track


def remembered_hashes(
    files: Sequence[Path], memory: Path, hashed: Callable[[Path], str], threads: int, what: str
) -> list[str]:
    """Return `hashed(file)` of every file in order; hashing releases the interpreter lock.

    `memory` is a file outside every artifact; `what` names the work on the progress line.
    """
    known = _read(memory)
    found: dict[str, Any] = {}

    def look(file: Path) -> str:
        state = file.stat()
        stamp = [state.st_ino, state.st_mtime_ns, state.st_size]
        before = known.get(str(file))
        same = isinstance(before, list) and before[:3] == stamp and len(before) == 4
        value = str(before[3]) if same and before else hashed(file)
        found[str(file)] = [*stamp, value]
        return value

    with ThreadPoolExecutor(threads) as pool:
        hashes = list(track(pool.map(look, files), what, total=len(files), unit="file"))
    if any(known.get(name) != value for name, value in found.items()):
        write_json(memory, {**known, **found})
    return hashes


def _read(memory: Path) -> dict[str, Any]:
    """Return what is remembered; nothing if the memory cannot be read."""
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
