"""Items made ahead on another thread while the current one is in use."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
AHEAD = 2  # items kept ready


class StalledError(Exception):
    """The error when nothing came in time: the thread that makes items is stuck."""


class Prefetch(Generic[Item]):
    """An iterator over `items`, made on another thread; `waited` is the seconds spent waiting.

    A thread that is stuck in foreign code cannot be ended: after `StalledError` it is left alone.
    """

    def __init__(
        self, items: Iterator[Item], ahead: int = AHEAD, patience_s: float | None = None
    ) -> None:
        self.items, self.waited, self.patience_s = items, 0.0, patience_s
        self.ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(ahead)
        self.stopped, self.stuck = threading.Event(), False
        self.thread = threading.Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Prefetch[Item]:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        if not self.stuck:
            self.thread.join()

    def __iter__(self) -> Iterator[Item]:
        while True:
            started = time.monotonic()
            try:
                item, error = self.ready.get(timeout=self.patience_s)
            except queue.Empty:
                self.stuck = True
                raise StalledError from None
            self.waited += time.monotonic() - started
            if error is not None:
                raise error
            if item is None:
                return
            yield item

    def _fill(self) -> None:
        try:
            for item in self.items:
                if not self._put((item, None)):
                    return
            self._put((None, None))
        except BaseException as error:  # raised again where the items are used
            self._put((None, error))

    def _put(self, entry: tuple[Item | None, BaseException | None]) -> bool:
        while not self.stopped.is_set():
            try:
                self.ready.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
