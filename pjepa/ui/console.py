"""The exception whose message is shown to users, and what others say in one line."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

# Text from data made safe to print: no control characters.

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


def plain_text(text: str) -> str:
    """Return the text as one line without control characters.

    XML cannot hold them and terminals obey them.
    """
    return CONTROL.sub(" ", text).strip()


VERBOSE = "PJEPA_VERBOSE"  # set: the traceback of an error is printed before its one line


class InputError(Exception):
    """Bad input: one line that says what is wrong, where, and what to do next.

    It may hold names from data, so control characters are replaced by blanks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain_text(message))


def show_traceback() -> None:
    """Print the traceback of the current error if requested (`-v`)."""
    if os.environ.get(VERBOSE):
        traceback.print_exc()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# Tables on stdout: rich on a terminal, plain aligned text in a pipe or a log.

TableRow = Sequence[str]


def _plain(row: TableRow) -> list[str]:
    return [plain_text(cell) for cell in row]  # names come from data


def print_table(title: str, header: TableRow, rows: Sequence[TableRow]) -> None:
    """Print one table; the first column is text, the others are numbers."""
    header, rows = _plain(header), [_plain(row) for row in rows]
    if not sys.stdout.isatty():
        print(plain_table(title, header, rows), flush=True)
        return
    table = Table(title=escape(title), title_justify="left")
    for index, name in enumerate(header):
        table.add_column(escape(name), justify="right" if index else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def plain_table(title: str, header: TableRow, rows: Sequence[TableRow]) -> str:
    """Return the same table as lines of text."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    text = [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([title, *text])


# Progress on stderr: a live bar on a terminal, a few plain lines elsewhere.

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
