"""Label Studio exports (JSON and JSON-MIN): timeline labels in frames, or labels in seconds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pjepa.errors import InputError
from pjepa.takes.annotations import Annotations, Marked
from pjepa.takes.videos import VIDEO_SUFFIXES

UPLOAD = re.compile(r"^[0-9a-f]{8}-")  # what an upload puts before a file's name


def is_label_studio(values: list[Any]) -> bool:
    """Whether a list of objects is an export and not plain rows."""
    return any(
        "annotations" in value or any(_regions(v) for v in value.values()) for value in values
    )


def read_label_studio(path: Path, values: list[dict[str, Any]], found: Annotations) -> None:
    """Adds every labelled span; of several annotations of a task the last one counts."""
    other = repeated = 0
    for number, task in enumerate(values):
        where = f"{path}, task {task.get('id', number)}"
        video = _video(task, where)
        results, count = _results(task, where)
        repeated += count > 1
        spans = [span for value in results for span in _spans(value, video, where)]
        other += sum(not list(_spans(value, video, where)) for value in results)
        found.rows += spans or [Marked(where, video)]
    if other:
        found.notes.append(f"{path}: {other} regions are no labelled spans of time: not used")
    if repeated:
        found.notes.append(f"{path}: {repeated} tasks annotated more than once: the last counts")


def _results(task: dict[str, Any], where: str) -> tuple[list[dict[str, Any]], int]:
    """Values of the regions, and how many annotations there were to choose from."""
    if "annotations" not in task:  # JSON-MIN
        return [region for value in task.values() for region in _regions(value)], 1
    kept = [a for a in _objects(task, "annotations", where) if not a.get("was_cancelled")]
    results = _objects(kept[-1], "result", where) if kept else []
    values = [result["value"] for result in results if isinstance(result.get("value"), dict)]
    return values, len(kept)


def _objects(value: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """A list of objects under a key, which may be empty."""
    found = value.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InputError(f"{where}: {key}: expected a list of objects, found {str(found)[:60]}")
    return found


def _regions(value: Any) -> list[dict[str, Any]]:
    """The regions in a field of JSON-MIN; empty where the field is something else."""
    if not isinstance(value, list):
        return []
    return [v for v in value if isinstance(v, dict) and ("ranges" in v or "labels" in v)]


def _spans(value: dict[str, Any], video: str, where: str) -> Iterator[Marked]:
    """The spans of one region: frames count from 1 and the last belongs to the span."""
    try:
        for label in _names(value, "timelinelabels", where):
            for span in value.get("ranges") or []:
                first, last = float(span["start"]) - 1, float(span["end"])
                yield Marked(where, video, first, last, label, frames=True)
        if "start" in value and "end" in value:
            for label in _names(value, "labels", where):
                yield Marked(where, video, float(value["start"]), float(value["end"]), label)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{where}: expected a range with start and end, found {value!r}") from None


def _names(value: dict[str, Any], key: str, where: str) -> list[str]:
    names = value.get(key) or []
    if not isinstance(names, list):
        raise InputError(f"{where}: {key}: expected a list of names, found {names!r}")
    return [str(name) for name in names]


def _video(task: dict[str, Any], where: str) -> str:
    """The file's name in the task's data: any field that ends like a video, its prefix removed."""
    data = task.get("data") if isinstance(task.get("data"), dict) else task
    for value in (data or {}).values():
        if not isinstance(value, str):
            continue
        url = urlsplit(value)
        name = (parse_qs(url.query).get("d") or [unquote(url.path)])[0].rsplit("/", 1)[-1]
        if name.lower().endswith(VIDEO_SUFFIXES):
            return UPLOAD.sub("", name)
    raise InputError(f"{where}: names no video ({', '.join(VIDEO_SUFFIXES)}) in its data")
