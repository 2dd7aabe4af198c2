"""Tables on stdout: rich on a terminal, plain aligned text in a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pjepa.ui.plain import plain_text

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
