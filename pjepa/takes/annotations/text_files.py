"""Text files of data sets: any newline, with or without a byte-order mark, UTF-8.

XML may come in any encoding and may declare no entities. CSV rows come with their place in the
file. A quote that is never closed would swallow the rest of the file, so it is an error; so are
cells that have no column.
"""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar
from xml.parsers import expat

from pjepa.ui.console import InputError, plain_text

Value = TypeVar("Value")


def file_text(path: Path, hint: str = "the data set is not complete") -> str:
    """Return the text of a file without a byte-order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path}: no such file; {hint}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def file_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, stripped line) of a file; empty lines at its end do not count."""
    text = file_text(path).rstrip()
    for number, line in enumerate(text.split("\n") if text else [], 1):
        yield f"{path}, line {number}", line.strip()


def json_value(path: Path, hint: str = "the data set is not complete") -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(file_text(path, hint))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from None


def xml_root(path: Path, what: str) -> ET.Element:
    """Return the root of an XML file of any encoding; `what` says whose files declare no entities.

    Entities can make a small file huge. The parser itself reports the declaration, because bytes
    look different in every encoding.
    """

    def refuse(*_: object) -> None:
        raise InputError(f"{path}: declares a document type or XML entities; {what} do not")

    content = path.read_bytes()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
        return ET.fromstring(content)
    except (expat.ExpatError, ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: not XML ({error})") from None


@dataclass(frozen=True)
class CsvRow:
    """One row of a CSV: its place in the file and its stripped cells by column."""

    where: str
    cells: dict[str, str]


def csv_table(
    path: Path,
    needed: Sequence[str],
    *,
    separators: str = ",",
    renamed: Callable[[str], str] = str.strip,
    optional: Sequence[str] = (),
    hint: str = "the data set is not complete",
) -> list[CsvRow]:
    """Return a CSV's rows but blank ones; the header's most frequent separator counts."""
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
    rows = []
    for where, cells in lines:
        if any(cells[len(columns) :]):
            raise InputError(f"{where}: more cells than the header's {len(columns)}; quote commas")
        pairs = zip_longest(columns, cells[: len(columns)], fillvalue="")
        rows.append(CsvRow(where, {name: cell for name, cell in pairs if name}))
    return rows


def _lines(path: Path, text: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (place, stripped cells) of every line that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    first = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield f"{path}, line {first}", [cell.strip() for cell in cells]
            first = reader.line_num + 1
    except csv.Error as error:
        where = f"{path}, line {first}"
        raise InputError(f"{where}: a quote is not closed or not doubled ({error})") from None


def as_number(value: Any, where: str, what: str = "seconds") -> float:
    """Return a value of a file as a number; `what` says which, `where` it stands."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: expected {what}, found {value!r}") from None


def as_whole(value: Any, where: str) -> int:
    """Return a value of a file as a whole number."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: expected a whole number, found {value!r}") from None


def check_span(start: float, end: float, where: str) -> None:
    """Raise an error for a segment that begins before 0, ends before it begins, or never ends."""
    if not 0 <= start <= end < float("inf"):
        raise InputError(
            f"{where}: a segment from {start:g} to {end:g} s; expected 0 <= start <= end"
        )


def in_order(values: Mapping[int, Value], path: Path, what: str) -> tuple[Value, ...]:
    """Return the values by their number; raise an error where one from 0 on is missing."""
    if not values or sorted(values) != list(range(len(values))):
        found = f"{min(values)} to {max(values)} for {len(values)}" if values else "none"
        raise InputError(f"{path}: {what} must run from 0 without a gap, found {found}")
    return tuple(values[key] for key in sorted(values))


def closest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` where a known name is near, else nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


# Notes from reading a source: one line per kind of finding, not one per case.

SHOWN = 3  # names shown in one line


@dataclass(frozen=True)
class Note:
    """One kind of finding, and the takes, files or labels it is about."""

    text: str
    names: tuple[str, ...] = ()

    def line(self, most: int | None = None) -> str:
        """Return the text with all names, or with the first few and the number of the rest."""
        if not self.names:
            return plain_text(self.text)
        shown = self.names[:most]
        more = len(self.names) - len(shown)
        line = f"{self.text}: {', '.join(shown)}" + (f" and {more} more" if more else "")
        return plain_text(line)  # names come from data


def counted(names: Sequence[str], what: str) -> list[Note]:
    """Return a note that says how many names there are of a kind, if any."""
    return [Note(f"{len(names)} {what}", tuple(dict.fromkeys(names)))] if names else []


def gathered(notes: Iterable[Note]) -> list[Note]:
    """Return the notes with equal texts merged, in order of first appearance."""
    names: dict[str, list[str]] = {}
    for note in notes:
        names.setdefault(note.text, []).extend(note.names)
    return [Note(text, tuple(dict.fromkeys(found))) for text, found in names.items()]
