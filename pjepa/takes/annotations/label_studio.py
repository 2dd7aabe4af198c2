"""Label Studio exports (JSON and JSON-MIN): timeline labels in frames, or labels in seconds.

Timelines count frames at the `frameRate` of the labelling configuration, 24 unless it says other,
whatever the rate of the video. An export does not repeat that number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pjepa.takes.annotations.rows import AnnotationRow, Annotations
from pjepa.takes.annotations.text_files import Note, xml_root
from pjepa.ui.console import InputError
from pjepa.video.files import VIDEO_SUFFIXES

CONFIG = ".xml"  # a labelling configuration beside the export
USUAL_RATE = 24.0  # of Label Studio where the configuration names none
UPLOAD = re.compile(r"^[0-9a-f]{8}-")  # what an upload puts before a file's name


def is_label_studio(values: list[Any]) -> bool:
    """Return whether a list of objects is an export and not plain rows."""
    return any(
        "annotations" in value or "predictions" in value or any(map(_regions, value.values()))
        for value in values
    )


def read_label_studio(
    path: Path, values: list[dict[str, Any]], rate: float | None, annotations: Annotations
) -> None:
    """Add every labelled span; of several annotations of a task the last one counts.

    `rate` is what timelines count at; None: as the labelling configuration beside the file says.
    """
    rates, seen = TimelineRate(path, rate), Counter[str]()
    for number, task in enumerate(values):
        where = f"{path}, task {task.get('id', number)}"
        video = _video(task, where)
        results, count = _results(task, where)
        spans = [list(_spans(value, task, video, where, rates)) for value in results]
        annotations.rows += [row for part in spans for row in part] or [AnnotationRow(where, video)]
        seen["regions that are no labelled spans of time: not used"] += spans.count([])
        seen["tasks annotated more than once: the last counts"] += count > 1
        guess = not results and bool(task.get("predictions"))
        seen["tasks with predictions that nobody accepted: not used"] += guess
    annotations.notes += [Note(text, (f"{path.name} ({n})",)) for text, n in seen.items() if n]
    for rate, how in rates.used:
        text = f"timelines count at {rate:g} frames per second ({how})"
        annotations.notes.append(Note(text, (path.name,)))


class TimelineRate:
    """Frames per second of the timelines of one export, and how those in use are known."""

    def __init__(self, path: Path, given: float | None) -> None:
        self.path, self.given = path, given
        self.used: dict[tuple[float, str], None] = {}

    @cached_property
    def configured(self) -> tuple[str, str]:
        """`frameRate` of the configuration, a number or `$field`, and the name of its file."""
        return labelling_rate(self.path)

    def of(self, task: dict[str, Any], where: str) -> float:
        """Return the rate of one task; the configuration may refer to a field of its data."""
        rate, how = self.given or 0.0, "data.folder.frame_rate"
        if not self.given:
            written, how = self.configured
            value: Any = written
            if written.startswith("$"):
                name, value = written[1:], _data(task).get(written[1:])
                if value is None:
                    raise InputError(
                        f"{where}: {how} counts frames at ${name}, but the task's data has no "
                        f"{name!r}; set data.folder.frame_rate"
                    )
            rate = _rate(str(value))
        self.used[rate, how] = None
        return rate


def labelling_rate(path: Path) -> tuple[str, str]:
    """Return `frameRate` of the labelling configuration beside an export, and its file name."""
    rates: dict[str, str] = {}
    for file in sorted(path.parent.glob(f"*{CONFIG}")):
        try:
            root = xml_root(file, "labelling configurations")
        except InputError:  # cameras write XML beside their films too
            continue
        for video in root.iter("Video") if root.tag == "View" else ():
            plain = {name.lower(): value for name, value in video.attrib.items()}
            rates.setdefault(plain.get("framerate", "").strip() or f"{USUAL_RATE:g}", file.name)
    if len(rates) != 1:
        what = f"those beside it say {', '.join(rates)}" if rates else "there is none beside it"
        raise InputError(
            f"{path}: timelines count frames at the frameRate of Label Studio's labelling "
            f"configuration, and {what}; save the configuration as {CONFIG} beside the export, or "
            f"set data.folder.frame_rate ({USUAL_RATE:g} unless it was changed)"
        )
    return next(iter(rates.items()))


def _rate(text: str) -> float:
    """Return frames per second as Label Studio reads them: below 1 are seconds per frame."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        return USUAL_RATE
    return value if value >= 1 else 1 / value


def _results(task: dict[str, Any], where: str) -> tuple[list[dict[str, Any]], int]:
    """Return values of the regions, and how many annotations there were to choose from."""
    if "annotations" not in task and "predictions" not in task:  # JSON-MIN
        return [region for value in task.values() for region in _regions(value)], 1
    kept = [a for a in _objects(task, "annotations", where) if not a.get("was_cancelled")]
    results = _objects(kept[-1], "result", where) if kept else []
    values = [result["value"] for result in results if isinstance(result.get("value"), dict)]
    return values, len(kept)


def _objects(value: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return a list of objects under a key, which may be empty."""
    items = value.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(f"{where}: {key}: expected a list of objects, found {str(items)[:60]}")
    return items


def _regions(value: Any) -> list[dict[str, Any]]:
    """Return the regions in a field of JSON-MIN; empty where the field is something else."""
    if not isinstance(value, list):
        return []
    return [v for v in value if isinstance(v, dict) and ("ranges" in v or "labels" in v)]


def _spans(
    value: dict[str, Any], task: dict[str, Any], video: str, where: str, rates: TimelineRate
) -> Iterator[AnnotationRow]:
    """Yield the spans of one region: frames count from 1 and the last belongs to the span."""
    try:
        for label in _names(value, "timelinelabels", where):
            for span in value.get("ranges") or []:
                first, last = float(span["start"]) - 1, float(span["end"])
                rate = rates.of(task, where)
                yield AnnotationRow(where, video, first / rate, last / rate, label)
        if "start" in value and "end" in value:
            for label in _names(value, "labels", where):
                yield AnnotationRow(where, video, float(value["start"]), float(value["end"]), label)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{where}: expected a range with start and end, found {value!r}") from None


def _names(value: dict[str, Any], key: str, where: str) -> list[str]:
    names = value.get(key) or []
    if not isinstance(names, list):
        raise InputError(f"{where}: {key}: expected a list of names, found {names!r}")
    return [str(name) for name in names]


def _video(task: dict[str, Any], where: str) -> str:
    """Return the video's file name: the first field of the task's data with a video suffix.

    The prefix that an upload adds is removed.
    """
    for value in _data(task).values():
        if not isinstance(value, str):
            continue
        with suppress(ValueError):  # what is no address names no video
            url = urlsplit(value)
            name = (parse_qs(url.query).get("d") or [unquote(url.path)])[0].rsplit("/", 1)[-1]
            if name.lower().endswith(VIDEO_SUFFIXES):
                return UPLOAD.sub("", name)
    raise InputError(f"{where}: names no video ({', '.join(VIDEO_SUFFIXES)}) in its data")


def _data(task: dict[str, Any]) -> dict[str, Any]:
    """Return the task's own fields, which JSON-MIN writes beside everything else."""
    data = task.get("data")
    return data if isinstance(data, dict) else task
