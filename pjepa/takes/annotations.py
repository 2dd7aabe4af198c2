"""Annotations of own videos as one kind of row, and those of CSV and JSON files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.errors import InputError
from pjepa.takes.text_files import csv_table, json_value

SPAN = ("video", "start", "end", "label")
FIELDS = ("split", "group", "recording", "participant", "view", "task")
NAMES = {  # other names people give the columns
    "start_s": "start", "start_sec": "start", "start_time": "start", "begin": "start",
    "end_s": "end", "end_sec": "end", "end_time": "end", "stop": "end",
    "action": "label", "class": "label", "step": "label", "file": "video", "video_id": "video",
}  # fmt: skip
DECIMAL_COMMA = re.compile(r"^(\d+),(\d+)$")  # spreadsheets of half the world
CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


@dataclass(frozen=True)
class Marked:
    """One annotation as a file states it; without a label the row only names its video.

    `frames` tells that start and end count frames from 0 (end exclusive) and are not seconds.
    """

    where: str
    video: str
    start: float = 0.0
    end: float = 0.0
    label: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    frames: bool = False


@dataclass
class Annotations:
    """Rows in the order of the files, and what was not used."""

    rows: list[Marked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_csv(path: Path, found: Annotations) -> None:
    """Adds the rows of a CSV with a header, separated by comma, semicolon or tab."""
    table = csv_table(path, SPAN, separators=",;\t", renamed=_column, optional=FIELDS)
    found.rows += [_marked(row.where, row.cells) for row in table.rows]
    _note_unused(path, table.columns, found)


def _note_unused(path: Path, columns: Iterable[str], found: Annotations) -> None:
    """A misspelt `participant` would leak people between splits: what is not read is said."""
    unused = [name for name in columns if name not in (*SPAN, *FIELDS)]
    if unused:
        found.notes.append(f"{path}: columns not used: {', '.join(unused)}")


def _column(name: str) -> str:
    plain = name.strip().lower().replace(" ", "_")
    return NAMES.get(plain, plain)


def json_list(path: Path) -> list[Any]:
    values = json_value(path)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(f"{path}: expected a list of objects with video, start, end, label")
    return values


def read_json_rows(path: Path, values: list[dict[str, Any]], found: Annotations) -> None:
    """Adds the objects of a list, which have the keys that a CSV has as columns."""
    keys: dict[str, None] = {}
    for number, value in enumerate(values):
        row = {_column(str(k)): "" if v is None else str(v).strip() for k, v in value.items()}
        if len(row) < len(value):
            raise InputError(f"{path}, [{number}]: two keys for one thing: {', '.join(value)}")
        found.rows.append(_marked(f"{path}, [{number}]", row))
        keys |= dict.fromkeys(row)
    _note_unused(path, keys, found)


def _marked(where: str, row: Mapping[str, str]) -> Marked:
    """A checked row; start, end and label stand together or not at all."""
    values = [row.get(name, "") for name in ("start", "end", "label")]
    if not row.get("video"):
        raise InputError(f"{where}: no video named")
    fields = {name: row[name] for name in FIELDS if row.get(name)}
    if not any(values):
        return Marked(where, row["video"], fields=fields)
    if not all(values):
        raise InputError(f"{where}: expected start, end and label, found {values}")
    start, end = seconds(values[0], where), seconds(values[1], where)
    return Marked(where, row["video"], start, end, values[2], fields)


def seconds(text: str, where: str) -> float:
    """Seconds of `12.5`, `1:02.5` or `0:01:02.5`; a comma may stand for the point."""
    if match := CLOCK.fullmatch(text):
        hours, minutes, rest = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    try:
        return float(DECIMAL_COMMA.sub(r"\1.\2", text))
    except ValueError:
        raise InputError(f"{where}: expected seconds or h:mm:ss, found {text!r}") from None
