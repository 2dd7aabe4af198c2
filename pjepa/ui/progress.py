"""Progress on stderr: a live bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
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

from pjepa.ui.plain import plain_text

Item = TypeVar("Item")
QUIET = "PJEPA_QUIET"  # set: no progress and no notes; workers inherit it
PLAIN_SECONDS = 10.0  # between two plain lines, so that queue logs stay readable
BAR_SECONDS = 0.2  # between two notes of a live bar
MeterNote = str | Callable[[], str]  # a callable is evaluated only when it is shown


def say(message: str) -> None:
    """Write one line for people; stdout stays free for results."""
    if not os.environ.get(QUIET):
        indent = message[: len(message) - len(message.lstrip(" "))]
        print(indent + plain_text(message), file=sys.stderr, flush=True)


class Meter:
    """A progress line that long work advances: `with Meter("encode", 100, "take") as meter`."""

    def __init__(self, what: str, total: int, unit: str = "step", quiet: bool = False) -> None:
        self.what, self.total, self.unit, self.quiet = what, total, unit, quiet
        self.done, self.resumed = 0, 0
        self.note: MeterNote = ""
        self.started = self.spoken = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> Meter:
        if sys.stderr.isatty() and not self.quiet and not os.environ.get(QUIET):
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

    def advance(self, count: int = 1, note: MeterNote = "", resumed: bool = False) -> None:
        """Count finished work; `note` is shown beside it (a loss, a take).

        Work done by an earlier run (`resumed`) counts as done but not towards the pace.
        """
        self.done, self.note = self.done + count, note or self.note
        self.resumed += count if resumed else 0
        every = BAR_SECONDS if self.bar is not None else PLAIN_SECONDS
        due = time.monotonic() - self.spoken >= every
        if due:
            self.spoken = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done)
            if due or isinstance(self.note, str):
                self.bar.update(self.bar.task_ids[0], note=self._note())
        elif due and not self.quiet:
            say(self._line())

    def _note(self) -> str:
        return self.note if isinstance(self.note, str) else self.note()

    def _line(self) -> str:
        elapsed = time.monotonic() - self.started
        rate = (self.done - self.resumed) / max(elapsed, 1e-9)
        left = f"about {(self.total - self.done) / rate:.0f} s left" if rate else "about ? s left"
        note = f", {self._note()}" if self.note else ""
        return f"{self.what}: {self.done}/{self.total} {self.unit}s{note}, {elapsed:.0f} s, {left}"

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif error[0] is None and not self.quiet:
            say(self._line().split(", about")[0])


def track(
    items: Iterable[Item], what: str, total: int | None = None, unit: str = "item"
) -> Iterator[Item]:
    """Yield `items` while a progress line counts them."""
    count = total if total is not None else len(items)  # type: ignore[arg-type]
    with Meter(what, count, unit) as meter:
        for item in items:
            yield item
            meter.advance()
