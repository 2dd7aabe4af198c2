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

from pjepa.ui.console import InputError, Meter, say

CHUNK = 1 << 20
TIMEOUT_S = 30.0
TRIES = 5  # in a row without a new byte
PAUSE_S = 1.0  # before the second try; doubles
PASSING = {408, 425, 429, 500, 502, 503, 504}  # worth another try
BROKEN = (URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class Remote:
    """A remote file and what is known about it."""

    url: str
    bytes: int | None = None
    sha256: str | None = None


def downloaded(remote: Remote, target: Path) -> Path:
    """Return `target`, downloading it if missing; an interrupted download is resumed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        if not target.is_file():
            partial = target.with_name(f"{target.name}.partial")
            _complete(remote, partial)
            check_file(partial, remote, keep_as=target.with_name(f"{target.name}.rejected"))
            os.replace(partial, target)
            _mark(partial).unlink(missing_ok=True)
            if remote.sha256 is None:
                say(f"{target}: not verified, no hash of it is known")
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
    """Complete the partial file, retrying as long as bytes arrive."""
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
    """Request the missing bytes and append them; start over if the server sends everything."""
    have = partial.stat().st_size if partial.exists() else 0
    mark = _mark(partial).read_text() if _mark(partial).exists() else ""
    headers = {"User-Agent": "pjepa"}
    if have and not (mark or remote.sha256):  # nothing tells that the rest belongs to it
        have = 0
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
        if have and not _begins_at(answer.headers.get("Content-Range"), have):
            raise InputError(f"{remote.url}: the server sent a different part than requested")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        _check_announced(remote, partial, have, total)
        _mark(partial).write_text(_validator(answer.headers.get("ETag")))
        with partial.open("ab" if have else "wb") as file:
            _append(answer, file, have, total, partial.name.removesuffix(".partial"))


def _validator(etag: str | None) -> str:
    """Return a strong ETag; a weak one does not promise the same bytes."""
    return "" if etag is None or etag.startswith("W/") else etag


def _begins_at(content_range: str | None, have: int) -> bool:
    """Return whether `bytes 5-9/10` continues where the file ends."""
    return content_range is None or content_range.strip().startswith(f"bytes {have}-")


def _total(content_range: str) -> int:
    """Return the size in `bytes */1234`; -1 if the server does not send it."""
    size = content_range.rpartition("/")[2]
    return int(size) if size.isdigit() else -1


def _check_announced(remote: Remote, partial: Path, have: int, total: int | None) -> None:
    """Raise an error, before the first byte, if the size is wrong or the disk is too full."""
    if total is not None and remote.bytes not in (None, total):
        raise InputError(
            f"{remote.url}: the server offers {total} bytes, expected {remote.bytes}; "
            "the release has changed, or a proxy answers in its place"
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
    """Append the response body; raise ConnectionError if it ends early."""
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
    """Raise an error if size or content differ; the bad file is moved to `keep_as`."""
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
    """Return the content hash of a file, with progress where it takes long."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file, Meter(f"check {path.name}", size // CHUNK + 1, "MB") as meter:
        while block := file.read(CHUNK):
            digest.update(block)
            meter.advance()
    return digest.hexdigest()
