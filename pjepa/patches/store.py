"""Patch features on disk: a content store of encoded takes, linked into the stage's out.

A store file is `<store>/<key>.safetensors`; the key covers everything that can change its bytes, so
adding a take encodes one take; the hash of its content stands beside it and is checked before it is
used again. Each file holds `patches`, fp16 [steps, cells, width], and its `PatchInfo` as metadata.
Written in pieces, so memory stays bounded.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pjepa.core.section import WindowMode, WindowScope
from pjepa.core.time import Sampling
from pjepa.storage.reading import read_json
from pjepa.storage.sealed import sealed_file
from pjepa.storage.writing import write_json
from pjepa.ui.console import InputError

TENSOR = "patches"
METADATA = "pjepa"  # one JSON value: safetensors does not keep the order of several
LONGEST_NAME = 200
UNKEYED = ("checkpoint", "seed")
SKIPPED = "skipped.json"
FICLONE = 0x40049409  # ioctl of Linux: Btrfs, XFS, bcachefs
REPEATED, CUTS = "repeated.json", "cuts.json"

Half = NDArray[np.float16]


@dataclass(frozen=True, kw_only=True)
class PatchInfo:
    """What patch features are, and all that is needed to encode another video in the same way.

    `checkpoint` and `seed` only say how the weights were asked for. Equal weights may have several
    names, so stored files leave the two out; `data/patches/config.json` has them.
    """

    backbone: str
    weights_id: str
    checkpoint: str = ""
    seed: int = 0
    precision: str = "fp32"
    fps: float  # frames per second that the backbone is shown
    tokens_fps: float
    tubelet: int  # frames per step
    frames_per_window: int
    window_scope: WindowScope
    window_mode: WindowMode = "block"
    window_stride: int = 1
    crop: int
    resampler: str
    view: str = "center"
    grid: int  # as in params: 0 keeps every patch
    rows: int
    columns: int
    width: int

    @property
    def sampling(self) -> Sampling:
        """Return how a take is cut into windows."""
        return Sampling(
            self.tokens_fps,
            self.tubelet,
            self.frames_per_window // self.tubelet,
            self.window_scope,
            self.window_mode,
            self.window_stride,
        )

    @property
    def cells(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class StoredPatches:
    """Memory-mapped features of one take, [steps, cells, width], and what they are."""

    info: PatchInfo
    patches: Half


def store_key(
    video_sha256: str,
    settings: dict[str, Any],
    boundaries: NDArray[np.float64] | None,
    weights_id: str,
    behaviour: int | str = 1,
) -> str:
    """Return sha256 over all that can change a take's features; `settings` holds plain values.

    `behaviour` names what the code does (patches/identity.py).
    """
    parts = {
        "version": behaviour,
        "video": video_sha256,
        "settings": settings,
        "boundaries": None if boundaries is None else boundaries.tolist(),
        "weights": weights_id,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def store_path(store: Path, key: str) -> Path:
    """Return where the store keeps the features of that key."""
    return store / f"{key}.safetensors"


def take_file_name(take_id: str) -> str:
    """Return `<take_id>.safetensors`; characters unsafe in file names are percent-quoted."""
    name = quote(take_id, safe="")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"take id {take_id[:40]!r}: expected 1 to {LONGEST_NAME} safe characters")
    return f"{name}.safetensors"


class PatchWriter:
    """A safetensors file of known shape that grows by appended steps."""

    def __init__(self, file: BinaryIO, info: PatchInfo, steps: int) -> None:
        self.file, self.expected = file, (steps, info.cells, info.width)
        self.written = 0
        size = 2 * steps * info.cells * info.width
        tensor = {"dtype": "F16", "shape": list(self.expected), "data_offsets": [0, size]}
        file.write(safetensors_header(stored_facts(info), {TENSOR: tensor}))

    def append(self, patches: Half) -> None:
        """Add features [n, cells, width]."""
        if patches.shape[1:] != self.expected[1:] or patches.dtype != np.float16:
            raise ValueError(f"expected fp16 [n, {self.expected[1:]}], found {patches.shape}")
        self.file.write(np.ascontiguousarray(patches).tobytes())
        self.written += len(patches)


def stored_facts(info: PatchInfo) -> dict[str, Any]:
    """Return what a file says of itself: nothing that its key does not cover."""
    return {name: value for name, value in asdict(info).items() if name not in UNKEYED}


def safetensors_header(metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> bytes:
    """Return the bytes before the data of a safetensors file with our metadata."""
    entries = {"__metadata__": {METADATA: json.dumps(metadata, sort_keys=True)}, **tensors}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


@contextmanager
def patch_writer(path: Path, info: PatchInfo, steps: int) -> Iterator[PatchWriter]:
    """Yield a writer; the file appears under its name only when all steps were written."""
    with sealed_file(path) as partial:
        with partial.open("wb") as file:
            writer = PatchWriter(file, info, steps)
            yield writer
        if writer.written != steps:
            raise ValueError(f"expected {steps} steps, {writer.written} were written")


def read_patches(path: Path) -> StoredPatches:
    """Return the features of one take, memory-mapped: only what is touched is read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, path.stat().st_size)))
        info = PatchInfo(**json.loads(header["__metadata__"][METADATA]))
        shape = tuple(header[TENSOR]["shape"])
        patches = np.memmap(path, np.float16, mode="r", offset=8 + length, shape=shape)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro patches`") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not a patch file of this project ({error})") from None
    return StoredPatches(info, patches)


def link_take(source: Path, folder: Path, take_id: str) -> Path:
    """Return the take's file in `folder`, sharing the store's blocks where possible.

    Else a hard link, made read-only because store, DVC's cache and workspace are then one file;
    a copy across file systems.
    """
    target = folder / take_file_name(take_id)
    if target.exists():
        raise InputError(f"take id {take_id!r} appears twice in the table of videos")
    if reflinked(source, target):
        return target
    try:
        os.link(source, target)
        source.chmod(0o444)
    except OSError:
        shutil.copyfile(source, target)
    return target


def reflinked(source: Path, target: Path) -> bool:
    """Make `target` share the blocks of `source` until one is changed; False if impossible."""
    try:
        with source.open("rb") as old, target.open("xb") as new:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True


def write_skipped(folder: Path, skipped: dict[str, str]) -> None:
    """Write which takes have no features, and why; `{}` if every take has them."""
    write_json(folder / SKIPPED, skipped)


def skipped_takes(folder: Path) -> dict[str, str]:
    """Return take_id -> reason of the takes without features; later stages leave them out."""
    path = folder / SKIPPED
    return dict(read_json(path)) if path.exists() else {}


def notes_of(target: Path) -> list[Path]:
    """Return the notes beside a take's file: of repeated frames and of jumps, where there are."""
    notes = (target.with_suffix(f".{name}") for name in (REPEATED, CUTS))
    return [note for note in notes if note.exists()]


def _write_note(path: Path, value: Any) -> None:
    with sealed_file(path) as partial:
        partial.write_text(json.dumps(value))


def note_repeated(target: Path, frames: int) -> None:
    """Record beside a take's file, before it appears, how many frames replace lost ones."""
    _write_note(target.with_suffix(f".{REPEATED}"), {"frames": frames})


def repeated_frames(target: Path) -> int:
    """Return how many frames of this file replace others that cannot be decoded."""
    note = target.with_suffix(f".{REPEATED}")
    return int(read_json(note)["frames"]) if note.exists() else 0


def note_cuts(target: Path, jumps_s: list[float]) -> None:
    """Record beside a take's file, before it appears, when its time stamps jump (seconds)."""
    _write_note(target.with_suffix(f".{CUTS}"), jumps_s)


def cuts_of(target: Path) -> list[float]:
    """Return when the time stamps of this file's video jump; nothing where none do."""
    note = target.with_suffix(f".{CUTS}")
    return list(read_json(note)) if note.exists() else []


def cut_takes(folder: Path) -> dict[str, tuple[float, ...]]:
    """Return take_id -> seconds at which its time stamps jump, of the takes in which they do."""
    path = folder / CUTS
    noted = read_json(path) if path.exists() else {}
    return {take_id: tuple(jumps) for take_id, jumps in noted.items()}


def repeated_takes(folder: Path) -> dict[str, int]:
    """Return take_id -> frames that replace lost ones, of the takes that have any."""
    path = folder / REPEATED
    return dict(read_json(path)) if path.exists() else {}
