"""Bytes of a pipe, taken as they arrive, so that a camera never waits for models to load.

Light to import: a pipe is opened before anything slow. What waits here has an age, so latencies
count from the arrival of the bytes and not from when somebody found time to decode them.
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
    """Standard input as a file that PyAV can read; `arrived` is the age of what was read last."""

    def __init__(self, descriptor: int = 0, limit: int = LIMIT) -> None:
        self.descriptor, self.limit = descriptor, limit
        self.arrived = time.monotonic()  # when the bytes came that `read` gave last
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._waiting, self._ended, self._closed = 0, False, False
        self._changed = threading.Condition()
        threading.Thread(target=self._fill, name="pipe", daemon=True).start()

    @property
    def is_file(self) -> bool:
        """Whether it is a file after all (`< take.ts`), which can wait."""
        return stat.S_ISREG(os.fstat(self.descriptor).st_mode)

    def read(self, size: int) -> bytes:
        """At most `size` bytes that came together; none at the end, or when closed."""
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
        """Nobody reads any more; safe inside a signal handler."""
        self._closed = True

    def _fill(self) -> None:
        """The thread that takes bytes from the pipe."""
        while not self._closed:
            try:
                chunk = os.read(self.descriptor, CHUNK)
            except OSError:  # no such descriptor: as good as an empty pipe
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
