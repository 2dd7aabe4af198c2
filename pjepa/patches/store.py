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
from collections.abc import Iterator
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
from pjepa.ui.console import InputError

TENSOR = "patches"
METADATA = "pjepa"  # one JSON value: safetensors does not keep the order of several
LONGEST_NAME = 200
UNKEYED = ("checkpoint", "seed")  # a file says nothing of itself that its key does not cover
SKIPPED, REPEATED, CUTS = "skipped.json", "repeated.json", "cuts.json"  # beside the takes' files
FICLONE = 0x40049409  # ioctl of Linux: Btrfs, XFS, bcachefs
# Part of every key: raise it when sampling, preprocessing or encoding change their numbers, which
# tests/patches/test_behaviour.py notices. Every store is then encoded again.
BEHAVIOUR = 1

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


def store_path(
    store: Path,
    video_sha256: str,
    settings: dict[str, Any],
    boundaries: NDArray[np.float64] | None,
    weights_id: str,
) -> Path:
    """Return where the store keeps a take's features, named by all that can change them.

    `settings` holds plain values.
    """
    parts = {
        "version": BEHAVIOUR,
        "video": video_sha256,
        "settings": settings,
        "boundaries": None if boundaries is None else boundaries.tolist(),
        "weights": weights_id,
    }
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return (store / f"{key}.safetensors").resolve()


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
        stated = {name: value for name, value in asdict(info).items() if name not in UNKEYED}
        about = {METADATA: json.dumps(stated, sort_keys=True)}
        entries = {"__metadata__": about, TENSOR: tensor}
        header = json.dumps(entries, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        file.write(len(header).to_bytes(8, "little") + header)

    def append(self, patches: Half) -> None:
        """Add features [n, cells, width]."""
        if patches.shape[1:] != self.expected[1:] or patches.dtype != np.float16:
            raise ValueError(f"expected fp16 [n, {self.expected[1:]}], found {patches.shape}")
        self.file.write(np.ascontiguousarray(patches).tobytes())
        self.written += len(patches)


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


def noted(folder: Path, name: str) -> dict[str, Any]:
    """Return what `SKIPPED`, `REPEATED` or `CUTS` says of takes in the out of `patches`.

    The reason why a take has no features (later stages leave it out), how many of its frames
    replace lost ones, the seconds at which its time stamps jump; of no other take.
    """
    path = folder / name
    return dict(read_json(path)) if path.exists() else {}


@dataclass(frozen=True)
class Notes:
    """What users of a take's features must know besides their values."""

    repeated: int = 0  # frames that replace others that cannot be decoded
    jumps_s: tuple[float, ...] = ()  # when the time stamps of its video jump


NOTES = (".notes.json", f".{REPEATED}", f".{CUTS}")  # stores of before 0.2.0 may have the latter


def note_files(target: Path) -> list[Path]:
    """Return the notes beside a take's file, where there are any."""
    return [note for name in NOTES if (note := target.with_suffix(name)).exists()]


def write_notes(target: Path, notes: Notes) -> None:
    """Write the notes beside a take's file, before it appears, if there is anything to note."""
    if notes != Notes():
        with sealed_file(target.with_suffix(NOTES[0])) as partial:
            partial.write_text(json.dumps(asdict(notes)))


def read_notes(target: Path) -> Notes:
    """Return the notes beside a take's file."""
    whole, repeated, jumps = (target.with_suffix(name) for name in NOTES)
    if whole.exists():
        noted = read_json(whole)
        return Notes(noted["repeated"], tuple(noted["jumps_s"]))
    return Notes(
        read_json(repeated)["frames"] if repeated.exists() else 0,
        tuple(read_json(jumps)) if jumps.exists() else (),
    )
