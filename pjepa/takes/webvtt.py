"""WebVTT subtitles as annotations: one cue is one step of the video named like the file."""

from __future__ import annotations

import html
import re
from pathlib import Path

from pjepa.errors import InputError
from pjepa.takes.annotations import Annotations, Marked, seconds
from pjepa.takes.text_files import file_text

TIMES = re.compile(r"^(\S+)[ \t]+-->[ \t]+(\S+)")
TAG = re.compile(r"<[^>]*>")  # voices and styles around a cue's text


def read_vtt(path: Path, found: Annotations) -> None:
    """Adds every cue; cues without text are counted."""
    text = file_text(path)
    if not text.startswith("WEBVTT"):
        raise InputError(f"{path}, line 1: expected WEBVTT, found {text[:20]!r}")
    lost, before = 0, len(found.rows)
    line = 1
    for block in re.split(r"\r?\n[ \t]*\r?\n", text):
        rows = block.splitlines()
        place = next((n for n, row in enumerate(rows) if TIMES.match(row.strip())), None)
        where, line = f"{path}, line {line + (place or 0)}", line + len(rows) + 1
        if place is None:
            continue  # the header, a note, a style
        match = TIMES.match(rows[place].strip())
        assert match is not None
        label = html.unescape(TAG.sub("", " ".join(rows[place + 1 :]))).strip()
        if not label:
            lost += 1
            continue
        start, end = (seconds(value, where) for value in match.groups())
        found.rows.append(Marked(where, path.stem, start, end, label))
    if lost:
        found.notes.append(f"{path}: {lost} cues without text not used")
    if len(found.rows) == before:
        found.rows.append(Marked(str(path), path.stem))
