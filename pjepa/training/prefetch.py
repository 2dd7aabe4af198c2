"""The next steps are read and packed on a thread of their own while the model trains."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
AHEAD = 2  # items kept ready


class Prefetch(Generic[Item]):
    """Iterates over `items`, made on another thread; `waited` is the seconds spent waiting."""

    def __init__(self, items: Iterator[Item], ahead: int = AHEAD) -> None:
        self.items, self.waited = items, 0.0
        self.ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(ahead)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Prefetch[Item]:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.thread.join()

    def __iter__(self) -> Iterator[Item]:
        while True:
            started = time.monotonic()
            item, error = self.ready.get()
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
