"""Progress on stderr: a live bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Item = TypeVar("Item")
PLAIN_SECONDS = 10.0  # between two plain lines, so that queue logs stay readable


def say(message: str) -> None:
    """Writes one line for people; stdout stays free for results."""
    print(message, file=sys.stderr, flush=True)


class Meter:
    """A progress line that long work advances: `with Meter("encode", 100, "take") as meter`."""

    def __init__(self, what: str, total: int, unit: str = "step", quiet: bool = False) -> None:
        self.what, self.total, self.unit, self.quiet = what, total, unit, quiet
        self.done, self.resumed, self.note = 0, 0, ""
        self.started = self.spoken = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> Meter:
        if sys.stderr.isatty() and not self.quiet:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.bar.start()
            self.bar.add_task(self.what, total=self.total, note="")
        return self

    def advance(self, count: int = 1, note: str = "", resumed: bool = False) -> None:
        """Counts finished work; `note` is shown beside it (a loss, a take).

        Work an earlier run had `resumed` counts as done but not towards the pace.
        """
        self.done, self.note = self.done + count, note or self.note
        self.resumed += count if resumed else 0
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, note=self.note)
        elif not self.quiet and time.monotonic() - self.spoken >= PLAIN_SECONDS:
            self.spoken = time.monotonic()
            say(self._line())

    def _line(self) -> str:
        elapsed = time.monotonic() - self.started
        rate = (self.done - self.resumed) / max(elapsed, 1e-9)
        left = f"about {(self.total - self.done) / rate:.0f} s left" if rate else "about ? s left"
        note = f", {self.note}" if self.note else ""
        return f"{self.what}: {self.done}/{self.total} {self.unit}s{note}, {elapsed:.0f} s, {left}"

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif error[0] is None and not self.quiet:
            say(self._line().split(", about")[0])


def track(
    items: Iterable[Item], what: str, total: int | None = None, unit: str = "item"
) -> Iterator[Item]:
    """Yields `items` while a progress line counts them."""
    count = total if total is not None else len(items)  # type: ignore[arg-type]
    with Meter(what, count, unit) as meter:
        for item in items:
            yield item
            meter.advance()
