"""Annotations of own videos as one kind of row, and those of CSV and JSON files."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pjepa.core.text import text_of_cell
from pjepa.takes.annotations.text_files import (
    Note,
    as_number,
    csv_table,
    file_lines,
    file_text,
    json_value,
)
from pjepa.ui.console import InputError

SPAN = ("video", "start", "end", "label")
# Instead, and `fps` if it is not the video's.
FRAMES = ("video", "start_frame", "end_frame", "label")
FIELDS = ("split", "group", "recording", "participant", "view", "task")
NAMES = {  # other names people give the columns
    "start_s": "start", "start_sec": "start", "start_time": "start", "begin": "start",
    "end_s": "end", "end_sec": "end", "end_time": "end", "stop": "end",
    "action": "label", "class": "label", "step": "label", "file": "video", "video_id": "video",
}  # fmt: skip
DECIMAL_COMMA = re.compile(r"\d+,\d+")  # from spreadsheets in many locales
CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


@dataclass(frozen=True)
class AnnotationRow:
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

    rows: list[AnnotationRow] = field(default_factory=list)
    vocabulary: dict[str, None] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def read_csv(path: Path, annotations: Annotations) -> None:
    """Add the rows of a CSV with a header, separated by comma, semicolon or tab."""
    first = file_text(path).split("\n", 1)[0].lower()
    needed = FRAMES if "start_frame" in first.replace(" ", "_") else SPAN
    rows = csv_table(path, needed, separators=",;\t", renamed=_column, optional=FIELDS)
    annotations.rows += [_checked(row.where, row.cells) for row in rows]
    _note_unused(path, rows[0].cells if rows else (), annotations)


def _note_unused(path: Path, columns: Iterable[str], annotations: Annotations) -> None:
    """Note unused columns: a misspelt `participant` would leak people between splits."""
    columns = list(columns)
    used = {*SPAN, *FIELDS, *((*FRAMES, "fps") if "start_frame" in columns else ())}
    unused = [name for name in columns if name not in used]
    if unused:
        annotations.notes.append(Note(f"columns not used in {path.name}", tuple(unused)))


def _column(name: str) -> str:
    plain = name.strip().lower().replace(" ", "_")
    return NAMES.get(plain, plain)


def json_list(path: Path) -> list[Any]:
    values = json_value(path)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(f"{path}: expected a list of objects with video, start, end, label")
    return values


def read_json_rows(path: Path, values: list[dict[str, Any]], annotations: Annotations) -> None:
    """Add the objects of a list, which have the keys that a CSV has as columns."""
    keys: dict[str, None] = {}
    for index, value in enumerate(values):
        row = {_column(str(k)): "" if v is None else str(v).strip() for k, v in value.items()}
        if len(row) < len(value):
            raise InputError(f"{path}, [{index}]: two keys for the same field: {', '.join(value)}")
        annotations.rows.append(_checked(f"{path}, [{index}]", row))
        keys |= dict.fromkeys(row)
    _note_unused(path, keys, annotations)


def _checked(where: str, row: Mapping[str, str]) -> AnnotationRow:
    """Return a checked row; it has all of start, end and label, or none."""
    row = {name: text_of_cell(cell) for name, cell in row.items()}
    frames = "start_frame" in row
    values = [row.get(name, "") for name in (FRAMES if frames else SPAN)[1:]]
    if not row.get("video"):
        raise InputError(f"{where}: no video named")
    fields = {name: row[name] for name in FIELDS if row.get(name)}
    if not any(values):
        return AnnotationRow(where, row["video"], fields=fields)
    if not all(values):
        raise InputError(f"{where}: expected start, end and label, found {values}")
    if not frames:
        start, end = seconds(values[0], where), seconds(values[1], where)
        return AnnotationRow(where, row["video"], start, end, values[2], fields)
    fps, what = row.get("fps", ""), "frame numbers (and fps)"
    start, end, rate = (as_number(value, where, what) for value in (*values[:2], fps or 1))
    if not 0 < rate < float("inf"):
        raise InputError(f"{where}: fps {fps}; expected frames per second")
    times = start / rate, end / rate  # frames at the video's rate where the row has none
    return AnnotationRow(where, row["video"], *times, values[2], fields, frames=not fps)


def seconds(text: str, where: str) -> float:
    """Return seconds of `12.5`, `1:02.5` or `0:01:02.5`; a comma may stand for the point."""
    if match := CLOCK.fullmatch(text):
        hours, minutes, rest = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    plain = text.replace(",", ".") if DECIMAL_COMMA.fullmatch(text) else text
    return as_number(plain, where, "seconds or h:mm:ss")


# One class name per frame and line, as MS-TCN and its kin have them: `groundTruth/<video>.txt`.

FOLDER = "groundTruth"  # other .txt files are no labels
MAPPING = "mapping.txt"  # beside that folder: the classes in their order
BUNDLES = ".bundle"  # split files


def is_frame_labels(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.parent.name.lower() == FOLDER.lower()


class FrameRun(NamedTuple):
    """Equal lines of a file of frame labels: frames first .. stop - 1."""

    where: str
    label: str
    first: int
    stop: int


def frame_runs(path: Path) -> list[FrameRun]:
    """Return the runs of equal lines; the last line may lack its newline."""
    runs: list[FrameRun] = []
    for frame, (where, label) in enumerate(file_lines(path)):
        if runs and runs[-1].label == label:
            runs[-1] = runs[-1]._replace(stop=frame + 1)
        elif label:
            runs.append(FrameRun(where, label, frame, frame + 1))
        else:
            raise InputError(f"{where}: an empty line; expected one class name per frame")
    if not runs:
        raise InputError(f"{path}: no label; expected one class name per line")
    return runs


def read_frame_labels(path: Path, annotations: Annotations) -> None:
    """Add the runs of equal labels of the video that the file is named after."""
    for where, label, first, stop in frame_runs(path):
        row = AnnotationRow(where, path.stem, first, stop, label, frames=True, every=True)
        annotations.rows.append(row)


# WebVTT subtitles as annotations: one cue is one step of the video named like the file.

TIMES = re.compile(r"^(\S+)[ \t]+-->[ \t]+(\S+)")
TAG = re.compile(r"<[^>]*>")  # voices and styles around a cue's text


def read_vtt(path: Path, annotations: Annotations) -> None:
    """Add every cue; cues without text are counted."""
    text = file_text(path)
    if not text.startswith("WEBVTT"):
        raise InputError(f"{path}, line 1: expected WEBVTT, found {text[:20]!r}")
    lost, before = 0, len(annotations.rows)
    for number, times, rows in _cues(text.split("\n")):
        where = f"{path}, line {number}"
        label = html.unescape(TAG.sub("", " ".join(rows))).strip()
        if not label:
            lost += 1
            continue
        start, end = (seconds(value, where) for value in times)
        annotations.rows.append(AnnotationRow(where, path.stem, start, end, label))
    if lost:
        annotations.notes.append(Note("cues without text not used", (f"{path.name} ({lost})",)))
    if len(annotations.rows) == before:
        annotations.rows.append(AnnotationRow(str(path), path.stem))


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
