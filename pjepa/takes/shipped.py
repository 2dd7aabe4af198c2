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

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.core.tables import VideoRow
from pjepa.storage.reading import read_torch
from pjepa.storage.roots import rooted
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    from torch import Tensor


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


def shipped_row(take_id: str, features: str, fps: float, duration_s: float) -> VideoRow:
    """Return the row of a take with these features below the data root."""
    return VideoRow(take_id, None, fps, duration_s, features, "data")


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


# The authors' packed archives: many videos' tokens end to end in one torch file: `tokens` [N, D],
# `times` [N] seconds, `offsets` [V + 1], and `paths` or `video_ids` of the V videos. No code in a
# file is run (`weights_only`), and no more than one take is in memory: the map is closed after
# every read, or the pages of a 40 GB archive would pile up.

FLOATS = ("torch.float32", "torch.float16")


@dataclass(frozen=True)
class Packed:
    """The index of an archive's videos; features stay on disk."""

    path: Path
    names: tuple[str, ...]  # paths, or video ids
    offsets: np.ndarray  # [V + 1]
    times: np.ndarray  # [N] float64 seconds
    width: int
    fps: float

    def span(self, number: int) -> tuple[int, int]:
        """Return the first row of a video and the row after its last."""
        return int(self.offsets[number]), int(self.offsets[number + 1])

    def video_times(self, number: int) -> np.ndarray:
        first, stop = self.span(number)
        return self.times[first:stop]


class PackedRows:
    """The features [T, D] of one video; every access maps the file anew."""

    def __init__(self, packed: Packed, number: int) -> None:
        self.packed, self.number = packed, number
        first, stop = packed.span(number)
        self.shape = (stop - first, packed.width)

    def __getitem__(self, index: Any) -> np.ndarray:
        first, stop = self.packed.span(self.number)
        tokens = read_torch(self.packed.path)["tokens"]
        return np.array(tokens[first:stop].numpy()[index])


@lru_cache(maxsize=64)
def _read(path: Path, stamp: tuple[int, int]) -> Packed:
    content = read_torch(path)
    names = _names(path, content)
    tokens = tensor(path, content, "tokens", 2)
    if str(tokens.dtype) not in FLOATS:
        raise InputError(f"{path}: tokens: expected {' or '.join(FLOATS)}, found {tokens.dtype}")
    times = tensor(path, content, "times", 1).double().numpy().copy()  # copies let go of the file
    offsets = tensor(path, content, "offsets", 1).long().numpy().copy()
    _check(path, names, tokens.shape[0], times, offsets)
    return Packed(path, names, offsets, times, tokens.shape[1], _rate(content, times))


def read_packed(path: Path) -> Packed:
    """Return an archive's index, checked; read once for a file that does not change."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such archive; `pjepa fetch` gets the public ones") from None
    return _read(path, (stat.st_size, stat.st_mtime_ns))


def tensor(path: Path, content: dict[str, Any], key: str, dimensions: int) -> Tensor:
    """Return a tensor of an archive by key; raise an error if the key holds anything else."""
    value: Any = content.get(key)
    if getattr(value, "ndim", None) != dimensions:
        found = list(value.shape) if hasattr(value, "shape") else type(value).__name__
        raise InputError(f"{path}: {key}: expected a {dimensions}-D tensor, found {found}")
    return value


def string_list(
    path: Path, content: dict[str, Any], key: str, length: int | None = None
) -> list[str]:
    """Return a list of strings of an archive by key."""
    value = content.get(key)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{path}: {key}: expected a list of names, found {type(value).__name__}")
    if length is not None and len(value) != length:
        raise InputError(f"{path}: {key}: expected {length} names, found {len(value)}")
    return list(value)


def _names(path: Path, content: dict[str, Any]) -> tuple[str, ...]:
    key = "video_ids" if "video_ids" in content else "paths"
    names = string_list(path, content, key)
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{path}: {key}: {name!r} appears twice")
    return tuple(names)


def _check(
    path: Path, names: tuple[str, ...], rows: int, times: np.ndarray, offsets: np.ndarray
) -> None:
    """Raise an error if the parts of an archive do not fit together."""
    if len(offsets) != len(names) + 1:
        raise InputError(f"{path}: offsets: expected {len(names) + 1}, found {len(offsets)}")
    if offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        span = f"{offsets[0]} to {offsets[-1]}"
        raise InputError(f"{path}: offsets: expected 0 rising to {rows} tokens, found {span}")
    if len(times) != rows:
        raise InputError(f"{path}: times: expected {rows} as tokens, found {len(times)}")
    rising = np.diff(times, prepend=-np.inf) > 0
    rising[offsets[:-1][offsets[:-1] < rows]] = True  # a video begins anew
    for bad in np.flatnonzero(~(rising & np.isfinite(times)))[:1].tolist():
        video = int(np.searchsorted(offsets, bad, side="right")) - 1
        row = bad - int(offsets[video])
        raise InputError(f"{path}: times: {names[video]!r}, row {row}: expected rising seconds")


def _rate(content: dict[str, Any], times: np.ndarray) -> float:
    """Return tokens per second: what the file says, else by the median step."""
    for key in ("target_fps", "effective_fps_fallback"):
        if isinstance(content.get(key), int | float) and content[key] > 0:
            return float(content[key])
    steps = np.diff(times)
    steps = steps[steps > 0]
    return round(1 / float(np.median(steps)), 2) if len(steps) else 1.0


def _packed(row: VideoRow, path: Path, key: str) -> Shipped:
    packed = read_packed(path)
    if not key.isdigit() or int(key) >= len(packed.names):
        raise InputError(
            f"take {row.take_id}: {path}: video {key!r}, expected 0 to {len(packed.names) - 1}"
        )
    return Shipped(PackedRows(packed, int(key)), packed.video_times(int(key)))


READERS: dict[str, Callable[[VideoRow, Path, str], Shipped]] = {
    "npy": partial(_array, time_first=True),
    "npy-dt": partial(_array, time_first=False),
    "pt": _packed,
    "lmdb": _tsm,
}
