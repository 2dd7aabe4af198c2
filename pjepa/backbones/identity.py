"""Content hashes of videos, remembered by path, size and time of change.

Hashing a terabyte takes half an hour: a run that is started again should not repeat it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pjepa.work import file_sha256, write_json

REMEMBERED = "videos.json"  # in the store, outside every artifact


def video_hashes(paths: list[Path], store: Path, threads: int) -> list[str]:
    """sha256 of every video, in order; hashing releases the interpreter lock."""
    known = _remembered(store / REMEMBERED)
    found: dict[str, list[int | str]] = {}

    def digest(path: Path) -> str:
        state = path.stat()
        stamp: list[int | str] = [state.st_size, state.st_mtime_ns]
        before = known.get(str(path), [])
        value = str(before[2]) if before[:2] == stamp and len(before) == 3 else file_sha256(path)
        found[str(path)] = [*stamp, value]
        return value

    with ThreadPoolExecutor(threads) as pool:
        hashes = list(pool.map(digest, paths))
    write_json(store / REMEMBERED, {**known, **found})
    return hashes


def _remembered(file: Path) -> dict[str, list[int | str]]:
    try:
        known = json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return known if isinstance(known, dict) else {}
