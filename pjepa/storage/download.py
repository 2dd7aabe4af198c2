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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pjepa.storage.writing import locked
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
    with locked(target.with_name(f".{target.name}.lock")) as alone:
        if not alone:
            raise InputError(f"{target}: another process is fetching it; wait for it")
        if not target.is_file():
            partial = target.with_name(f"{target.name}.partial")
            _complete(remote, partial)
            check_file(partial, remote, keep_as=target.with_name(f"{target.name}.rejected"))
            os.replace(partial, target)
            _etag_file(partial).unlink(missing_ok=True)
            if remote.sha256 is None:
                say(f"{target}: not verified, no hash of it is known")
    return target


def _etag_file(partial: Path) -> Path:
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
    mark = _etag_file(partial).read_text() if _etag_file(partial).exists() else ""
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
        if error.headers.get("Content-Range", "") == f"bytes */{have}":
            return  # nothing is missing
        partial.unlink()
        return _continue(remote, partial)
    with answer:
        have = have if answer.status == 206 else 0
        expected = f"bytes {have}-"
        if have and not answer.headers.get("Content-Range", expected).startswith(expected):
            raise InputError(f"{remote.url}: the server sent a different part than requested")
        length, etag = answer.headers.get("Content-Length"), answer.headers.get("ETag", "")
        total = have + int(length) if length else None
        _check_announced(remote, partial, have, total)
        # a weak one does not promise the same bytes
        _etag_file(partial).write_text("" if etag.startswith("W/") else etag)
        name = partial.name.removesuffix(".partial")
        with partial.open("ab" if have else "wb") as file:
            for block in _blocks(answer, f"fetch {name}", total or have, have):
                file.write(block)
                have += len(block)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _blocks(file: BinaryIO, what: str, total: int, done: int = 0) -> Iterator[bytes]:
    """Yield what is left of a file, with progress in MB."""
    with Meter(what, total // CHUNK + 1, "MB") as meter:
        meter.advance(done // CHUNK, resumed=True)
        while block := file.read(CHUNK):
            yield block
            meter.advance((done + len(block)) // CHUNK - done // CHUNK)
            done += len(block)


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


def check_file(path: Path, remote: Remote, keep_as: Path | None = None) -> None:
    """Raise an error if size or content differ; the bad file is moved to `keep_as`."""
    size = path.stat().st_size
    if remote.bytes not in (None, size):
        held, expected = f"{size} bytes", f"{remote.bytes} bytes"
    elif remote.sha256 is not None:
        held, expected = f"sha256 {sha256_shown(path)}", f"sha256 {remote.sha256}"
    else:
        return
    if held == expected:
        return
    aside = ""
    if keep_as is not None:
        os.replace(path, keep_as)
        path, aside = keep_as, ", put aside"
    raise InputError(f"{path}: {held}{aside}, the released file has {expected}; fetch it again")


def sha256_shown(path: Path) -> str:
    """Return the content hash of a file, with progress where it takes long."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in _blocks(file, f"check {path.name}", path.stat().st_size):
            digest.update(block)
    return digest.hexdigest()
