"""Annotations of own videos as one kind of row, and those of CSV and JSON files."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from pjepa.core.text import text_of_cell
from pjepa.takes.annotations.text_files import Note, csv_table, file_text, json_value
from pjepa.ui.console import InputError

SPAN = ("video", "start", "end", "label")
FRAMES = (
    "video",
    "start_frame",
    "end_frame",
    "label",
)  # instead, and `fps` if it is not the video's
FIELDS = ("split", "group", "recording", "participant", "view", "task")
NAMES = {  # other names people give the columns
    "start_s": "start", "start_sec": "start", "start_time": "start", "begin": "start",
    "end_s": "end", "end_sec": "end", "end_time": "end", "stop": "end",
    "action": "label", "class": "label", "step": "label", "file": "video", "video_id": "video",
}  # fmt: skip
DECIMAL_COMMA = re.compile(r"^(\d+),(\d+)$")  # from spreadsheets in many locales
CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


@dataclass(frozen=True)
class Marked:
    """One annotation as a file states it; without a label the row only names its video.

    `frames`: start and end are frame numbers from 0 (end exclusive), not seconds;
    `every`: the file labels every frame of the video; `folder`: where the file lies, inside the
    folder of labels.
    """

    where: str
    video: str
    start: float = 0.0
    end: float = 0.0
    label: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    frames: bool = False
    every: bool = False
    folder: str = "."


@dataclass
class Annotations:
    """Rows in the order of the files, labels that files list, and notes on unused parts."""

    rows: list[Marked] = field(default_factory=list)
    vocabulary: dict[str, None] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def read_csv(path: Path, found: Annotations) -> None:
    """Add the rows of a CSV with a header, separated by comma, semicolon or tab."""
    first = file_text(path).split("\n", 1)[0].lower()
    needed = FRAMES if "start_frame" in first.replace(" ", "_") else SPAN
    table = csv_table(path, needed, separators=",;\t", renamed=_column, optional=FIELDS)
    found.rows += [_marked(row.where, row.cells) for row in table.rows]
    _note_unused(path, table.columns, found)


def _note_unused(path: Path, columns: Iterable[str], found: Annotations) -> None:
    """Note unused columns: a misspelt `participant` would leak people between splits."""
    columns = list(columns)
    used = {*SPAN, *FIELDS, *((*FRAMES, "fps") if "start_frame" in columns else ())}
    unused = [name for name in columns if name not in used]
    if unused:
        found.notes.append(Note(f"columns not used in {path.name}", tuple(unused)))


def _column(name: str) -> str:
    plain = name.strip().lower().replace(" ", "_")
    return NAMES.get(plain, plain)


def json_list(path: Path) -> list[Any]:
    values = json_value(path)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(f"{path}: expected a list of objects with video, start, end, label")
    return values


def read_json_rows(path: Path, values: list[dict[str, Any]], found: Annotations) -> None:
    """Add the objects of a list, which have the keys that a CSV has as columns."""
    keys: dict[str, None] = {}
    for number, value in enumerate(values):
        row = {_column(str(k)): "" if v is None else str(v).strip() for k, v in value.items()}
        if len(row) < len(value):
            raise InputError(f"{path}, [{number}]: two keys for the same field: {', '.join(value)}")
        found.rows.append(_marked(f"{path}, [{number}]", row))
        keys |= dict.fromkeys(row)
    _note_unused(path, keys, found)


def _marked(where: str, row: Mapping[str, str]) -> Marked:
    """Return a checked row; it has all of start, end and label, or none."""
    row = {name: text_of_cell(cell) for name, cell in row.items()}
    frames = "start_frame" in row
    values = [row.get(name, "") for name in (FRAMES if frames else SPAN)[1:]]
    if not row.get("video"):
        raise InputError(f"{where}: no video named")
    fields = {name: row[name] for name in FIELDS if row.get(name)}
    if not any(values):
        return Marked(where, row["video"], fields=fields)
    if not all(values):
        raise InputError(f"{where}: expected start, end and label, found {values}")
    if frames:
        return _framed(where, row["video"], values, row.get("fps", ""), fields)
    start, end = seconds(values[0], where), seconds(values[1], where)
    return Marked(where, row["video"], start, end, values[2], fields)


def _framed(
    where: str, video: str, values: list[str], fps: str, fields: Mapping[str, str]
) -> Marked:
    """Return a row given in frames: seconds if it has a rate, else frames at the video's rate."""
    try:
        start, end, rate = float(values[0]), float(values[1]), float(fps or 1)
    except ValueError:
        raise InputError(
            f"{where}: expected frame numbers (and fps), found {[*values[:2], fps]}"
        ) from None
    if not 0 < rate < float("inf"):
        raise InputError(f"{where}: fps {fps}; expected frames per second")
    return Marked(where, video, start / rate, end / rate, values[2], fields, frames=not fps)


def seconds(text: str, where: str) -> float:
    """Return seconds of `12.5`, `1:02.5` or `0:01:02.5`; a comma may stand for the point."""
    if match := CLOCK.fullmatch(text):
        hours, minutes, rest = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    try:
        return float(DECIMAL_COMMA.sub(r"\1.\2", text))
    except ValueError:
        raise InputError(f"{where}: expected seconds or h:mm:ss, found {text!r}") from None


# One class name per frame and line, as MS-TCN and its kin have them: `groundTruth/<video>.txt`.

FOLDER = "groundTruth"  # other .txt files are no labels
MAPPING = "mapping.txt"  # beside that folder: the classes in their order
BUNDLES = ".bundle"  # split files


def is_frame_labels(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.parent.name.lower() == FOLDER.lower()


def read_frame_labels(path: Path, found: Annotations) -> None:
    """Add the runs of equal lines; the last line may lack its newline."""
    text = file_text(path).rstrip()
    if not text:
        raise InputError(f"{path}: no label; expected one class name per line")
    frame = 0
    for label, run in groupby(line.strip() for line in text.split("\n")):
        count = sum(1 for _ in run)
        where = f"{path}, line {frame + 1}"
        if not label:
            raise InputError(f"{where}: an empty line; expected one class name per frame")
        found.rows.append(
            Marked(where, path.stem, frame, frame + count, label, frames=True, every=True)
        )
        frame += count


# WebVTT subtitles as annotations: one cue is one step of the video named like the file.

TIMES = re.compile(r"^(\S+)[ \t]+-->[ \t]+(\S+)")
TAG = re.compile(r"<[^>]*>")  # voices and styles around a cue's text


def read_vtt(path: Path, found: Annotations) -> None:
    """Add every cue; cues without text are counted."""
    text = file_text(path)
    if not text.startswith("WEBVTT"):
        raise InputError(f"{path}, line 1: expected WEBVTT, found {text[:20]!r}")
    lost, before = 0, len(found.rows)
    for number, times, rows in _cues(text.split("\n")):
        where = f"{path}, line {number}"
        label = html.unescape(TAG.sub("", " ".join(rows))).strip()
        if not label:
            lost += 1
            continue
        start, end = (seconds(value, where) for value in times)
        found.rows.append(Marked(where, path.stem, start, end, label))
    if lost:
        found.notes.append(Note("cues without text not used", (f"{path.name} ({lost})",)))
    if len(found.rows) == before:
        found.rows.append(Marked(str(path), path.stem))


def _cues(lines: list[str]) -> Iterator[tuple[int, tuple[str, ...], list[str]]]:
    """Yield (line number, times, text) of every cue.

    A cue ends at a blank line, or where the next one starts: some files have no blank lines. Then
    its last line may be the number of the next cue.
    """
    starts = [n for n, line in enumerate(lines) if TIMES.match(line.strip())]
    numbered = bool(starts) and starts[0] > 0 and lines[starts[0] - 1].strip().isdecimal()
    for start, following in zip_longest(starts, starts[1:]):
        match = TIMES.match(lines[start].strip())
        assert match is not None
        blank = (n for n in range(start + 1, len(lines)) if not lines[n].strip())
        end = next(blank, len(lines))
        if following is not None and following < end:
            end = following - (numbered and lines[following - 1].strip().isdecimal())
        yield start + 1, match.groups(), lines[start + 1 : end]


# Annotation files of own videos: CSV, JSON, ELAN .eaf, WebVTT and Label Studio exports.
