"""Files and folders that are there whole or not at all, whatever kills the writing process."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pjepa.ui.console import InputError

PARTIAL = ".partial"
ABANDONED_S = 86_400.0  # partial files of another machine are removed after a day
SYNC = "PJEPA_FSYNC"  # 0: nothing is forced to the disk (tests); kills are survived, power loss not
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_cleaned: set[Path] = set()


def partial_name(path: Path) -> Path:
    """Return the temporary name of `path` while this process, which it names, writes it."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}{PARTIAL}")


def remove_partials(folder: Path) -> None:
    """Remove the partial files of dead processes, once per folder and process."""
    absolute = folder.absolute()
    if absolute in _cleaned or not absolute.is_dir():
        return
    _cleaned.add(absolute)
    for partial in absolute.glob(f".*{PARTIAL}"):
        if _abandoned(partial):
            remove(partial)


def _abandoned(partial: Path) -> bool:
    """Return whether its process is dead; on another machine, whether it is a day old."""
    machine, _, process = partial.name.split(".")[-2].rpartition("-")
    if machine == _machine() and process.isdigit():
        return not _alive(int(process))
    try:
        return time.time() - partial.lstat().st_mtime > ABANDONED_S
    except FileNotFoundError:  # its process was faster
        return False


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _machine() -> str:
    """Return a short name of this machine, because a folder may be shared with others."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def remove(path: Path) -> None:
    """Remove a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_all(path: Path) -> None:
    """Sync a file, or a folder with everything in it, to disk."""
    for each in (*path.rglob("*"), path):  # there is nothing below a file
        sync(each)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    if os.environ.get(SYNC) == "0" or os.name != "posix" or path.is_symlink():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def named_disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into a one-line error that names the folder."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each library that writes files has its own kind
        number, text = getattr(error, "errno", None), str(error)
        if number in FULL or "No space left" in text or "file write failed" in text:
            folder = next(place for place in path.absolute().parents if place.exists())
            raise InputError(
                f"{path.parent}: the disk is full ({shutil.disk_usage(folder).free / 1e6:,.1f} MB "
                f"free): {path.name} needs more; make room and run the same command again"
            ) from None
        named = getattr(error, "filename", None)
        places = (path, partial_name(path), *path.parents)
        if number in REFUSED and named and Path(os.fsdecode(named)) in places:
            reason = os.strerror(number or 0)
            hint = "allow it, or choose another place"
            raise InputError(f"{path}: cannot be written ({reason}); {hint}") from None
        raise


@contextmanager
def locked(file: Path) -> Iterator[bool]:
    """Hold a lock in the block; yield whether this process got it."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def check_new_file(path: Path) -> None:
    """Raise if the path cannot become a file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    check_writable(path)


def check_new_folder(path: Path) -> None:
    """Raise if the folder is not empty: it may hold videos, or predictions corrected by hand."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: exists and is not empty; name a new folder")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Raise if the path cannot be written; create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written; choose another place")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` and rename what the block made of it, if it succeeds."""
    partial = partial_name(path)
    try:
        with named_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_partials(path.parent)
            remove(partial)
            yield partial
            _put_in_place(partial, path)
    finally:
        with suppress(OSError):  # what went wrong before is what matters
            remove(partial)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` and put it in place when the block succeeds."""
    with atomic_file(path) as partial:
        partial.mkdir()
        yield partial


def _put_in_place(partial: Path, path: Path) -> None:
    """Rename the finished file; it is synced first, so a power loss leaves old or new."""
    inside = any(parent.name.endswith(PARTIAL) for parent in path.parents)
    if not inside:  # else it is synced with the folder it is in
        sync_all(partial)
    either_is_a_folder = path.is_dir() or (path.exists() and partial.is_dir())
    if either_is_a_folder and not path.is_symlink():  # only a file can be renamed onto a file
        before = partial_name(path.with_name(f"{path.name}.before"))
        os.replace(path, before)
        os.replace(partial, path)
        remove(before)
    else:
        os.replace(partial, path)
    if not inside:
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write byte-stable JSON: sorted keys, two spaces, a final newline."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], about: str | None = None) -> None:
    """Write torch or numpy tensors as a safetensors file; `about` is text for its header."""
    import torch
    from safetensors.torch import save_file

    plain = {n: torch.as_tensor(v).detach().cpu().contiguous() for n, v in tensors.items()}
    with atomic_file(path) as partial:
        save_file(plain, partial, metadata=None if about is None else {"about": about})


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table with one line for its columns."""
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(header)
        sheet.writerows(rows)
