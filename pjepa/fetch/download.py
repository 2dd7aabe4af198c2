"""One file over HTTP: progress, resume after any interruption, size and sha256 checked.

Bytes go to `<name>.partial`; the file appears under its name only when it is whole and right. The
server's mark of the version (ETag) stands beside it, so that two versions are never joined.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout

from pjepa.errors import InputError
from pjepa.progress import Meter, say

CHUNK = 1 << 20
TIMEOUT_S = 30.0
TRIES = 5  # in a row without a new byte
PAUSE_S = 1.0  # before the second try; doubles
PASSING = {408, 425, 429, 500, 502, 503, 504}  # worth another try
BROKEN = (URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class Remote:
    """A file elsewhere and what is known of it."""

    url: str
    bytes: int | None = None
    sha256: str | None = None


def downloaded(remote: Remote, target: Path) -> Path:
    """`target`, fetched unless it is there; an interrupted fetch continues where it stopped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        if not target.is_file():
            partial = target.with_name(f"{target.name}.partial")
            _complete(remote, partial)
            check_file(partial, remote, keep_as=target.with_name(f"{target.name}.rejected"))
            os.replace(partial, target)
            _mark(partial).unlink(missing_ok=True)
    return target


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"{target}: another process is fetching it; wait for it") from None
    try:
        yield
    finally:
        lock.release()


def _mark(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.etag")


def _complete(remote: Remote, partial: Path) -> None:
    """Makes the partial file whole, trying again as long as bytes arrive."""
    failures = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            return _continue(remote, partial)
        except HTTPError as error:
            if error.code not in PASSING:
                raise InputError(
                    f"{remote.url}: the server says {error.code} {error.reason}"
                ) from None
            reason = f"{error.code} {error.reason}"
        except BROKEN as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
            if isinstance(getattr(error, "reason", None), socket.gaierror):  # no network at all
                raise InputError(f"{remote.url}: no connection ({reason})") from None
        moved = partial.exists() and partial.stat().st_size > before
        failures = 1 if moved else failures + 1
        if failures >= TRIES:
            raise InputError(f"{remote.url}: no connection ({reason})")
        say(f"fetch: {reason}; trying again")
        time.sleep(PAUSE_S * 2 ** (failures - 1))


def _continue(remote: Remote, partial: Path) -> None:
    """Asks for what is missing and appends it; a server that sends all again starts it anew."""
    have = partial.stat().st_size if partial.exists() else 0
    mark = _mark(partial).read_text() if _mark(partial).exists() else ""
    headers = {"User-Agent": "pjepa"}
    if have:
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": mark} if mark else {})
    try:
        answer = urlopen(Request(remote.url, headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        if error.code != 416:
            raise
        if _total(error.headers.get("Content-Range", "")) == have:
            return  # nothing is missing
        partial.unlink()
        return _continue(remote, partial)
    with answer:
        have = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        _check_announced(remote, partial, have, total)
        _mark(partial).write_text(answer.headers.get("ETag") or "")
        with partial.open("ab" if have else "wb") as file:
            _append(answer, file, have, total, partial.name.removesuffix(".partial"))


def _total(content_range: str) -> int:
    """The size in `bytes */1234`; -1 where the server does not say."""
    size = content_range.rpartition("/")[2]
    return int(size) if size.isdigit() else -1


def _check_announced(remote: Remote, partial: Path, have: int, total: int | None) -> None:
    """Before the first byte: is it the file we know, and does it fit on the disk?"""
    if total is not None and remote.bytes not in (None, total):
        raise InputError(
            f"{remote.url}: the server offers {total} bytes, expected {remote.bytes}; "
            "the release has changed, or something between answers in its place"
        )
    missing, free = (total or 0) - have, shutil.disk_usage(partial.parent).free
    if missing > free:
        raise InputError(
            f"{partial.parent}: {missing / 1e9:.1f} GB are missing, {free / 1e9:.1f} GB are free; "
            "make room, or set PJEPA_CACHE to another disk"
        )


def _append(
    answer: http.client.HTTPResponse, file: BinaryIO, have: int, total: int | None, name: str
) -> None:
    """Writes the answer's body; one that ends early counts as a broken connection."""
    megabytes = (total or have) // CHUNK + 1
    with Meter(f"fetch {name}", megabytes, "MB") as meter:
        meter.advance(have // CHUNK, resumed=True)
        done = have
        while block := answer.read(CHUNK):
            file.write(block)
            meter.advance((done + len(block)) // CHUNK - done // CHUNK)
            done += len(block)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def check_file(path: Path, remote: Remote, keep_as: Path | None = None) -> None:
    """Refuses a file of another size or content; `keep_as` is where it is put aside."""
    size = path.stat().st_size
    if remote.bytes not in (None, size):
        found, expected = f"{size} bytes", f"{remote.bytes} bytes"
    elif remote.sha256 is not None:
        found, expected = f"sha256 {sha256_shown(path)}", f"sha256 {remote.sha256}"
    else:
        return
    if found == expected:
        return
    aside = ""
    if keep_as is not None:
        os.replace(path, keep_as)
        path, aside = keep_as, ", put aside"
    raise InputError(f"{path}: {found}{aside}, the released file has {expected}; fetch it again")


def sha256_shown(path: Path) -> str:
    """The content hash of a file, with progress where it takes long."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file, Meter(f"check {path.name}", size // CHUNK + 1, "MB") as meter:
        while block := file.read(CHUNK):
            digest.update(block)
            meter.advance()
    return digest.hexdigest()
