"""Packed feature archives: many videos' tokens end to end in one torch file, read memory-mapped.

`tokens` [N, D], `times` [N] seconds, `offsets` [V + 1], and `paths` or `video_ids` of the V videos.
No code in a file is run (`weights_only`), and no more than one take is in memory: the map is
closed after every read, or the pages of a 40 GB archive would pile up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pjepa.storage.reading import read_torch
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    from torch import Tensor

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
    times = tensor(path, content, "times", 1).numpy().astype(np.float64)
    offsets = tensor(path, content, "offsets", 1).numpy().astype(np.int64)
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
