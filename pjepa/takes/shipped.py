"""Frame features shipped with a data set instead of videos (I3D, TSM, ...).

A locator is `kind:path#key`, the path relative to the row's root:

| kind     | path                                   | key                                          |
|----------|----------------------------------------|----------------------------------------------|
| `npy`    | an array [T, D]                        | `first:stop` rows, or none: all              |
| `npy-dt` | an array [D, T]                        | `first:stop` columns, or none: all           |
| `pt`     | a packed archive of the authors        | the video's number in it                     |
| `lmdb`   | an environment of float32 rows (TSM)   | `prefix:first:stop`: frames prefix_%010d.jpg |

Row i of a span is at (first + i) / fps seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.core.tables import VideoRow
from pjepa.storage.roots import rooted
from pjepa.takes.archive_file import PackedRows, read_packed
from pjepa.ui.console import InputError


class FeatureRows(Protocol):
    """Features [T, D] read on demand: `rows[index]` with an index array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Shipped:
    """Frame features of one take, read lazily if the format allows, and their times."""

    features: FeatureRows  # [T, D]
    times_s: NDArray[np.float64]  # [T] seconds, increasing


def locator(kind: str, path: str, key: str = "") -> str:
    """Return `kind:path#key`; raise an error if the path holds a `#`."""
    if "#" in path:
        raise InputError(f"{path!r}: a name with '#' cannot be read; rename the file")
    return f"{kind}:{path}#{key}" if key else f"{kind}:{path}"


def read_shipped(row: VideoRow) -> Shipped:
    """Return the features that a row's locator names; raise an error if it is malformed."""
    if row.features is None:
        raise InputError(f"take {row.take_id}: has a video, no shipped features")
    kind, _, rest = row.features.partition(":")
    path, _, key = rest.partition("#")
    if kind not in READERS or not path:
        kinds = ", ".join(READERS)
        raise InputError(
            f"take {row.take_id}: features {row.features!r}: expected KIND:PATH#KEY, KIND {kinds}"
        )
    file = rooted(row.root, path)
    if not file.exists():
        raise InputError(f"take {row.take_id}: no features {file}; check the data root")
    shipped = READERS[kind](row, file, key)
    if len(shipped.features.shape) != 2 or shipped.features.shape[0] != len(shipped.times_s):
        raise InputError(
            f"take {row.take_id}: {file}: features {list(shipped.features.shape)}, expected "
            f"[{len(shipped.times_s)}, width]"
        )
    return shipped


def shipped_shape(row: VideoRow) -> tuple[int, int]:
    """Return (T, D) of a row's features; no feature is read."""
    rows, width = read_shipped(row).features.shape
    return rows, width


def numpy_array(path: Path) -> np.ndarray:
    """Return a memory-mapped 2-D array of floats; raise an error for anything else."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a .npy array ({reason}); fetch it again") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        shape = list(getattr(array, "shape", []))
        kind = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{path}: expected a 2-D array of floats, found {kind} {shape}")
    return array


def _span(key: str, name: str) -> tuple[int, int]:
    """Return first and stop row of a key."""
    try:
        first, stop = (int(number) for number in key.split(":"))
    except ValueError:
        raise InputError(f"{name}: expected rows FIRST:STOP, found {key!r}") from None
    return first, stop


def _times(row: VideoRow, first: int, stop: int) -> NDArray[np.float64]:
    return np.arange(first, stop, dtype=np.float64) / row.fps


def _array(row: VideoRow, path: Path, key: str, time_first: bool) -> Shipped:
    array = numpy_array(path) if time_first else numpy_array(path).T  # a view
    name = f"take {row.take_id}: {path}"
    first, stop = _span(key, name) if key else (0, len(array))
    if not 0 <= first < stop <= len(array):
        raise InputError(
            f"{name}: rows {first}:{stop} of {len(array)}; the file is shorter or was cut"
        )
    return Shipped(array[first:stop], _times(row, first, stop))


def _packed(row: VideoRow, path: Path, key: str) -> Shipped:
    packed = read_packed(path)
    if not key.isdigit() or int(key) >= len(packed.names):
        raise InputError(
            f"take {row.take_id}: {path}: video {key!r}, expected 0 to {len(packed.names) - 1}"
        )
    return Shipped(PackedRows(packed, int(key)), packed.video_times(int(key)))


def _tsm(row: VideoRow, path: Path, key: str) -> Shipped:
    prefix, *span = key.rsplit(":", 2)
    first, stop = _span(":".join(span), f"take {row.take_id}: {path}")
    return Shipped(LmdbRows(path, prefix, first, stop), _times(row, first, stop))


# Assembly101's TSM features: an LMDB environment per view, one float32 row per frame.


@dataclass(frozen=True)
class LmdbRows:
    """Rows of the frames first .. stop - 1; `rows[index]` reads those of an index array.

    `prefix` of their keys is `{sequence}/{view}/{view}`.
    """

    path: Path
    prefix: str
    first: int
    stop: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        with open_lmdb(self.path).begin(buffers=True) as transaction:
            return self.stop - self.first, len(self._value(transaction, self.first)) // 4

    def __getitem__(self, index: Any) -> np.ndarray:
        frames = np.atleast_1d(np.arange(self.first, self.stop)[index])
        rows = np.empty((len(frames), self.shape[1]), np.float32)
        with open_lmdb(self.path).begin(buffers=True) as transaction:
            for place, frame in enumerate(frames.tolist()):
                value = self._value(transaction, frame)
                if len(value) != rows[place].nbytes:
                    raise InputError(
                        f"{self.path}: {frame_key(self.prefix, frame).decode()!r} holds "
                        f"{len(value)} bytes, expected {rows[place].nbytes} as the first frame"
                    )
                rows[place] = np.frombuffer(value, np.float32)
        return rows

    def _value(self, transaction: Any, frame: int) -> Any:
        key = frame_key(self.prefix, frame)
        value = transaction.get(key)
        if value is None:
            raise InputError(f"{self.path}: no key {key.decode()!r}; the download is not complete")
        return value


def frame_key(prefix: str, frame: int) -> bytes:
    return f"{prefix}_{frame:010d}.jpg".encode()


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


READERS: dict[str, Callable[[VideoRow, Path, str], Shipped]] = {
    "npy": partial(_array, time_first=True),
    "npy-dt": partial(_array, time_first=False),
    "pt": _packed,
    "lmdb": _tsm,
}
