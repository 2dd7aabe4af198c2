"""Annotations of own videos as one kind of row, and those of CSV and JSON files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.errors import InputError

FIELDS = ("split", "group", "recording", "participant", "view", "task")
NAMES = {  # other names people give the columns
    "start_s": "start", "start_sec": "start", "start_time": "start", "begin": "start",
    "end_s": "end", "end_sec": "end", "end_time": "end", "stop": "end",
    "action": "label", "class": "label", "step": "label", "file": "video", "video_id": "video",
}  # fmt: skip
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def csv_rows(path: Path) -> Iterator[Marked]:
    """Rows of a CSV with a header; the separator is the header's: comma, semicolon or tab."""
    text = _text(path)
    header = text.split("\n", 1)[0]
    separator = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    columns = [_column(name) for name in reader.fieldnames or []]
    _check_columns(columns, path)
    reader.fieldnames = columns
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if None in row:
            raise InputError(f"{where}: more cells than the header's {len(columns)}; quote commas")
        if any((value or "").strip() for value in row.values()):
            yield _marked(where, {k: (v or "").strip() for k, v in row.items()})


def _column(name: str) -> str:
    plain = name.strip().lower().replace(" ", "_")
    return NAMES.get(plain, plain)


def _check_columns(columns: list[str], path: Path) -> None:
    missing = [name for name in ("video", "start", "end", "label") if name not in columns]
    if missing or len(set(columns)) != len(columns):
        raise InputError(
            f"{path}, line 1: expected the columns video,start,end,label (and {', '.join(FIELDS)}),"
            f" found {','.join(columns) or 'nothing'}"
        )


def json_list(path: Path) -> list[Any]:
    try:
        values = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(f"{path}: expected a list of objects with video, start, end, label")
    return values


def json_rows(path: Path, values: list[dict[str, Any]]) -> Iterator[Marked]:
    for number, value in enumerate(values):
        row = {_column(str(k)): "" if v is None else str(v) for k, v in value.items()}
        yield _marked(f"{path}, [{number}]", row)


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
    """Seconds of `12.5`, `1:02.5` or `0:01:02.5`."""
    if match := CLOCK.fullmatch(text):
        hours, minutes, rest = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: expected seconds or h:mm:ss, found {text!r}") from None
