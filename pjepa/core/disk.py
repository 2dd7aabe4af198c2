"""Support for atomic writes: names of unfinished files, fsync, one-line disk errors."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pjepa.ui.errors import InputError

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
    place = folder.absolute()
    if place in _cleaned or not place.is_dir():
        return
    _cleaned.add(place)
    for partial in place.glob(f".*{PARTIAL}"):
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
    if path.is_dir():
        for inner in path.rglob("*"):
            sync(inner)
    sync(path)


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
            raise InputError(_full(path)) from None
        named = getattr(error, "filename", None)
        places = (path, partial_name(path), *path.parents)
        if number in REFUSED and named and Path(os.fsdecode(named)) in places:
            reason = os.strerror(number or 0)
            hint = "allow it, or choose another place"
            raise InputError(f"{path}: cannot be written ({reason}); {hint}") from None
        raise


def _full(path: Path) -> str:
    """Return the message for a disk that filled up while `path` was written."""
    partial = partial_name(path)
    files = [file for file in (partial, *partial.rglob("*")) if file.is_file()]
    written = sum(file.stat().st_size for file in files) / 1e6
    folder = next(place for place in path.absolute().parents if place.exists())
    free = shutil.disk_usage(folder).free / 1e6
    return (
        f"{path.parent}: the disk is full ({free:,.1f} MB free): {path.name} needs more than the "
        f"{written:,.1f} MB that were written; make room and run the same command again"
    )
