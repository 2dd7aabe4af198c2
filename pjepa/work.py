"""Files written whole, and work folders that survive an interrupted stage.

DVC deletes a stage's outs before it runs, so whatever a killed stage should find again lives in
`<dvc root>/.dvc/tmp/pjepa/<stage>/<fingerprint>/`. The fingerprint covers params and inputs: state
of another experiment is never resumed by mistake.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pjepa.errors import InputError


def fingerprint(*parts: Any) -> str:
    """A short hash of JSON-able values, the same in every process."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """The content hash of a file, read in bounded chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sha256(path: Path) -> str:
    """The content hash of a file, or of a folder's names and files (a stream may be either)."""
    if not path.is_dir():
        return file_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return fingerprint([(file.relative_to(path).as_posix(), file_sha256(file)) for file in files])


def work_root() -> Path:
    """Where resume state lives: the same folder for workspace, temporary and queued runs."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dvc" / "tmp" / "pjepa"


@contextmanager
def work_folder(stage: str, key: str, keep: bool = False) -> Iterator[Path]:
    """Yields this run's work folder, locked, and removes it when the stage succeeds."""
    folder = work_root() / stage / key
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{stage}: another process is running the same work; wait for it or stop it"
        ) from None
    try:
        yield folder
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path` and renames it when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path` and puts it in place when the block succeeds."""
    with whole_either(path) as partial:
        partial.mkdir()
        yield partial


@contextmanager
def whole_either(path: Path) -> Iterator[Path]:
    """As `whole_file`, for a block that makes a file or a folder of the temporary name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _remove(partial)
    try:
        yield partial
        _remove(path)
        os.replace(partial, path)
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes byte-stable JSON: sorted keys, two spaces, a final newline."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file; a missing or broken one is named."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run the stage that writes it") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
