"""Text files of data sets, read one way: any newline, a mark at the start or none, UTF-8 or named.

CSV rows come with their place in the file. A quote that is never closed would swallow the rest of
the file, so it is an error; so are cells that have no column.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.errors import InputError


def file_text(path: Path, hint: str = "the data set is not complete") -> str:
    """The text of a file without a byte-order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path}: no such file; {hint}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def json_value(path: Path, hint: str = "the data set is not complete") -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(file_text(path, hint))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from None


@dataclass(frozen=True)
class Row:
    """One row of a CSV: where it stands, and its cells by column, without surrounding blanks."""

    where: str
    cells: dict[str, str]


@dataclass
class Table:
    """The rows of a CSV file that are not blank, and its columns."""

    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def csv_table(
    path: Path,
    needed: Sequence[str],
    *,
    separators: str = ",",
    renamed: Callable[[str], str] = str.strip,
    optional: Sequence[str] = (),
    hint: str = "the data set is not complete",
) -> Table:
    """A CSV with a header; its separator is the one that the header has most of."""
    text = file_text(path, hint)
    lines = _lines(path, text, max(separators, key=text.split("\n", 1)[0].count))
    _, header = next(lines, ("", []))
    columns = [renamed(name) for name in header]
    named = [name for name in columns if name]
    missing = [name for name in needed if name not in named]
    if missing or len(set(named)) < len(named):
        more = f" (and {', '.join(optional)})" if optional else ""
        fault = f"no column {', '.join(missing)}" if missing else "two columns of one name"
        raise InputError(
            f"{path}, line 1: expected the columns {','.join(needed)}{more}, found "
            f"{','.join(columns) or 'nothing'}: {fault}"
        )
    return Table(named, [_row(where, cells, columns) for where, cells in lines])


def _lines(path: Path, text: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """(place, cells) of every line that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    number = 1
    while True:
        where = f"{path}, line {number}"
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{where}: a quote is not closed or not doubled ({error})") from None
        number = reader.line_num + 1
        if any(cells):
            yield where, cells


def _row(where: str, cells: list[str], columns: list[str]) -> Row:
    if any(cells[len(columns) :]):
        raise InputError(f"{where}: more cells than the header's {len(columns)}; quote commas")
    filled = [*cells, *[""] * (len(columns) - len(cells))]
    return Row(where, {name: cell for name, cell in zip(columns, filled, strict=False) if name})
