"""WebVTT subtitles as annotations: one cue is one step of the video named like the file."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from pjepa.takes.annotations.notes import Note
from pjepa.takes.annotations.rows import Annotations, Marked, seconds
from pjepa.takes.annotations.text_files import file_text
from pjepa.ui.errors import InputError

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
