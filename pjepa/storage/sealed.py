"""Content hashes of files that are reused: that a file exists does not mean it is intact.

`<name>.sha256` beside a file holds the hashes it may have: of the file and of the two before it.
One may be kept beside it, one may have been damaged, and hash and file cannot be replaced in one
step. A damaged file is put aside, never used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pjepa.storage.reading import file_sha256, read_object
from pjepa.storage.writing import atomic_file, write_json, write_text
from pjepa.ui.console import InputError, say, track

SEAL, BEFORE, DAMAGED = ".sha256", ".before", ".damaged"


def seal_of(path: Path) -> Path:
    """Return where the hashes of a file are."""
    return path.with_name(f"{path.name.removesuffix(BEFORE)}{SEAL}")


@contextmanager
def sealed_file(path: Path, keep_before: bool = False) -> Iterator[Path]:
    """Write as `atomic_file` does, with a hash beside the file; the previous file can be kept."""
    with atomic_file(path) as partial:
        yield partial
        seal(path, file_sha256(partial))
        if keep_before and path.exists():
            os.replace(path, path.with_name(f"{path.name}{BEFORE}"))


def seal(path: Path, digest: str) -> None:
    """Write the hash that `path` has or is about to have; the previous two stay valid."""
    write_text(seal_of(path), "\n".join([digest, *_sealed(path)[:2]]) + "\n")


def _sealed(path: Path) -> list[str]:
    try:
        return seal_of(path).read_text(errors="replace").split()
    except FileNotFoundError:
        return []


def intact(path: Path) -> bool:
    """Return whether the file is as written; one without a hash is accepted and sealed."""
    digest = file_sha256(path)
    if not seal_of(path).exists():
        seal(path, digest)
    return digest in _sealed(path)


def put_aside(path: Path, what: str) -> None:
    """Rename a damaged file and report it in one line.

    DVC's cache may be another name of the same file, and DVC trusts read-only files of known age:
    it would link the damaged one back. Writable and of a new age, it is hashed again and dropped.
    """
    aside = path.with_name(f"{path.name}{DAMAGED}")
    with suppress(FileNotFoundError):  # another process of the same run was faster
        with suppress(PermissionError):  # somebody else's file
            path.chmod(0o644)
            os.utime(path)
        os.replace(path, aside)
        say(f"{path}: {what}; put aside as {aside.name}")


def newest_intact(path: Path) -> Path | None:
    """Return the file, or the previous one, whichever is not damaged; None if neither is."""
    for file in (path, path.with_name(f"{path.name}{BEFORE}")):
        if file.exists() and intact(file):
            return file
        if file.exists():
            put_aside(file, "is damaged, it is not what was written")
    return None


def damaged_files(paths: Iterable[Path], threads: int) -> list[Path]:
    """Return the files that are not as written; hashing releases the interpreter lock."""
    listed = list(paths)
    with ThreadPoolExecutor(threads, "verify") as pool:
        whole = list(pool.map(intact, listed))
    return [path for path, good in zip(listed, whole, strict=True) if not good]


def remove_sealed(path: Path) -> None:
    """Remove a file and its hash."""
    path.unlink(missing_ok=True)
    seal_of(path).unlink(missing_ok=True)


def remembered_hashes(
    files: Sequence[Path], memory: Path, hashed: Callable[[Path], str], threads: int, what: str
) -> list[str]:
    """Return `hashed(file)` of every file in order; hashing releases the interpreter lock.

    `memory` is a file outside every artifact that remembers hashes by inode, time of change and
    size, so that a file is read once; `what` names the work on the progress line.
    """
    known: dict[str, str] = {}
    with suppress(InputError):  # there is no memory yet, or it is damaged
        known = read_object(memory)

    def look(file: Path) -> tuple[str, str]:
        state = file.stat()
        stamp = f"{file} {state.st_ino} {state.st_mtime_ns} {state.st_size}"
        return stamp, str(known.get(stamp) or hashed(file))

    with ThreadPoolExecutor(threads) as pool:
        hashes = list(track(pool.map(look, files), what, total=len(files), unit="file"))
    if not known.keys() >= dict(hashes).keys():
        write_json(memory, {**known, **dict(hashes)})
    return [digest for _, digest in hashes]
