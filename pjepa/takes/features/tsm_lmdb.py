"""Assembly101's TSM features: an LMDB environment per view, one float32 row per frame.

Key `{sequence}/{view}/{view}_{frame:010d}.jpg`, frames from 1, value raw float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.ui.errors import InputError


@dataclass(frozen=True)
class LmdbRows:
    """Rows of the frames first .. stop - 1; `rows[index]` reads those of an index array."""

    path: Path
    prefix: str
    first: int
    stop: int
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.stop - self.first, self.width

    def __getitem__(self, index: Any) -> np.ndarray:
        frames = np.atleast_1d(np.arange(self.first, self.stop)[index])
        rows = np.empty((len(frames), self.width), np.float32)
        with open_lmdb(self.path).begin(buffers=True) as transaction:
            for place, frame in enumerate(frames.tolist()):
                rows[place] = _row(transaction, frame_key(self.prefix, frame), self)
        return rows


def frame_key(prefix: str, frame: int) -> bytes:
    """Return the key of a frame; `prefix` is `{sequence}/{view}/{view}`."""
    return f"{prefix}_{frame:010d}.jpg".encode()


def lmdb_rows(path: Path, prefix: str, first: int, stop: int) -> LmdbRows:
    """Return the rows of a span; the first frame defines the width."""
    if first >= stop:
        raise InputError(f"{path}: {prefix}: no frame in {first}:{stop}")
    with open_lmdb(path).begin(buffers=True) as transaction:
        value = transaction.get(frame_key(prefix, first))
        if value is None:
            raise InputError(f"{path}: no key {frame_key(prefix, first).decode()!r}")
        return LmdbRows(path, prefix, first, stop, len(value) // 4)


def last_frame(path: Path, prefix: str, stop: int) -> int | None:
    """Return the last stored frame before `stop` of that prefix, or None if there is none."""
    start = f"{prefix}_".encode()
    with open_lmdb(path).begin() as transaction, transaction.cursor() as cursor:
        found = cursor.set_range(frame_key(prefix, stop))
        if not (cursor.prev() if found else cursor.last()) or not cursor.key().startswith(start):
            return None
        return int(cursor.key()[len(start) :].split(b".")[0])


def open_lmdb(path: Path) -> Any:
    """Return the environment, read-only and without a lock file: shared data stays untouched."""
    return _opened(path.resolve())


@lru_cache(maxsize=32)  # LMDB refuses to open an environment twice in a process
def _opened(path: Path) -> Any:
    try:
        lmdb = import_module("lmdb")
    except ImportError:
        raise InputError(
            f"{path}: reading it needs lmdb; run `pip install 'pjepa[assembly101]'`"
        ) from None
    try:
        return lmdb.open(
            str(path), readonly=True, lock=False, readahead=False, meminit=False, create=False
        )
    except lmdb.Error as error:
        raise InputError(f"{path}: not an LMDB environment ({error}); fetch it again") from None


def _row(transaction: Any, key: bytes, rows: LmdbRows) -> np.ndarray:
    value = transaction.get(key)
    if value is None:
        raise InputError(f"{rows.path}: no key {key.decode()!r}; the download is not complete")
    if len(value) != 4 * rows.width:
        raise InputError(
            f"{rows.path}: {key.decode()!r} holds {len(value)} bytes, expected {4 * rows.width} "
            f"({rows.width} float32)"
        )
    return np.frombuffer(value, np.float32)
