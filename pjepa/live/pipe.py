"""Bytes of a pipe, read as they arrive, so that a camera never waits for models to load.

Light to import: a pipe is opened before anything slow. Waiting bytes keep their arrival time, so
latencies count from there and not from when they were decoded.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque

PIPE = STDOUT = "-"  # the name of standard input as a source, of standard output as a file
CHUNK = 1 << 16
LIMIT = 64 << 20  # bytes that may wait: a minute of 8 Mbit/s; then the writer waits too
POLL_S = 0.1


class Pipe:
    """Standard input as a file that PyAV can read; `arrived` is when its last bytes came."""

    def __init__(self, descriptor: int = 0, limit: int = LIMIT) -> None:
        self.descriptor, self.limit = descriptor, limit
        self.arrived = time.monotonic()  # when the bytes came that `read` gave last
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._waiting, self._ended, self._closed = 0, False, False
        self._changed = threading.Condition()
        threading.Thread(target=self._fill, name="pipe", daemon=True).start()

    @property
    def is_file(self) -> bool:
        """Return whether standard input is a regular file (`< take.ts`), which can wait."""
        return stat.S_ISREG(os.fstat(self.descriptor).st_mode)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes that arrived together; empty at the end or when closed."""
        with self._changed:
            while not self._chunks and not self._ended and not self._closed:
                self._changed.wait(POLL_S)
            if not self._chunks or self._closed:
                return b""
            self.arrived, chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft((self.arrived, chunk[size:]))
            self._waiting -= min(size, len(chunk))
            self._changed.notify_all()
            return chunk[:size]

    def close(self) -> None:
        """Stop reading; safe inside a signal handler."""
        self._closed = True

    def _fill(self) -> None:
        """Read bytes from the pipe (runs in its own thread)."""
        while not self._closed:
            try:
                chunk = os.read(self.descriptor, CHUNK)
            except OSError:  # no such descriptor: treat it as an empty pipe
                chunk = b""
            with self._changed:
                self._chunks.append((time.monotonic(), chunk))
                self._waiting += len(chunk)
                self._ended = not chunk
                self._changed.notify_all()
                while self._waiting > self.limit and not self._closed:
                    self._changed.wait(POLL_S)
            if not chunk:
                return
