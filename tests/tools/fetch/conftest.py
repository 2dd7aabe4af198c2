"""A real HTTP server on this machine: ranges, broken connections, wrong bytes, errors."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pjepa.storage import download
from pjepa.storage.hub import CACHE
from pjepa.storage.roots import DATA_ROOT


@dataclass
class Site:
    """What the server serves and how it misbehaves; `asked` are the requests it saw."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    json: dict[str, bytes] = field(default_factory=dict)  # answers of the hub's interface
    cuts: list[int] = field(default_factory=list)  # bytes after which the next answers break off
    errors: list[int] = field(default_factory=list)  # statuses of the next answers
    ranges: bool = True
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range


def handler_for(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def log_message(self, *arguments: object) -> None: ...

        def answer(self, body: bool) -> None:
            site.asked.append((self.command, self.path, self.headers.get("Range", "")))
            path = self.path.split("?")[0]
            if path in site.json:
                self.send(200, site.json[path], {"Content-Type": "application/json"}, body)
            elif site.errors:
                self.send(site.errors.pop(0), b"no", {}, body)
            elif path not in site.files:
                what = "RepoNotFound" if path.startswith("/api/") else "EntryNotFound"
                self.send(404, b"not here", {"X-Error-Code": what}, body)
            else:
                self.send_file(site.files[path], body)

        def send_file(self, content: bytes, body: bool) -> None:
            mark = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            headers = {"X-Repo-Commit": "a" * 40, "Accept-Ranges": "bytes", "ETag": mark}
            wanted = self.headers.get("Range", "") if site.ranges else ""
            same = self.headers.get("If-Range", mark) == mark
            start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted and same else 0
            if start and start >= len(content):
                headers["Content-Range"] = f"bytes */{len(content)}"
                return self.send(416, b"", headers, body)
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            cut = site.cuts.pop(0) if site.cuts and body else None
            self.send(206 if start else 200, content[start:], headers, body, cut)

        def send(
            self, status: int, content: bytes, headers: dict[str, str], body: bool,
            cut: int | None = None,
        ) -> None:  # fmt: skip
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content[:cut])
                self.wfile.flush()
            if cut is not None:
                self.close_connection = True

    return Handler


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(found))
    server.handle_error = lambda *about: None  # a client that hangs up is part of the tests
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches and data root of this test alone, and no waiting between tries."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv(DATA_ROOT, str(tmp_path / "data"))
    monkeypatch.setattr(download, "PAUSE_S", 0.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path
