"""Predicted steps as files of other tools: subtitles, ELAN, Label Studio.

`vtt` shows the steps in any player; `eaf` and `labelstudio` can be corrected by hand and read back
by the `folder` source. Labels are text inside these files, never markup, and control characters
become blanks: XML cannot hold them.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import quote
from xml.sax.saxutils import escape

from pjepa.ui.console import plain_text

TIER = "steps"
CONFIG = "labelstudio.xml"


@dataclass(frozen=True)
class PredictedStep:
    """One predicted step of a video; `outlook`: next step, progress and surprise at its end."""

    start: float
    end: float
    label: str
    score: float
    outlook: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Labelled:
    """A video and its steps in order."""

    name: str  # of its file
    fps: float
    steps: Sequence[PredictedStep]
    model: str = "pjepa"  # what predicted them


def vtt_text(video: Labelled) -> str:
    """Return the steps as WebVTT, one cue per step."""
    cues = ["WEBVTT\n"]
    for number, step in enumerate(video.steps, 1):
        label = escape(" ".join(plain_text(step.label).split()))
        cues.append(f"{number}\n{_clock(step.start)} --> {_clock(step.end)}\n{label}\n")
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    total = round(1000 * seconds)
    minutes, milliseconds = divmod(total, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds / 1000:06.3f}"


def eaf_text(video: Labelled) -> str:
    """Return the steps as ELAN XML: one tier of annotations, times in milliseconds."""
    root = ET.Element(
        "ANNOTATION_DOCUMENT",
        {"AUTHOR": "pjepa", "DATE": "1970-01-01T00:00:00+00:00", "FORMAT": "3.0", "VERSION": "3.0"},
    )
    header = ET.SubElement(root, "HEADER", {"MEDIA_FILE": "", "TIME_UNITS": "milliseconds"})
    beside = quote(PurePosixPath(video.name).name)  # the file goes beside its video
    media = {"MIME_TYPE": "video/*", "RELATIVE_MEDIA_URL": f"./{beside}"}
    ET.SubElement(header, "MEDIA_DESCRIPTOR", {"MEDIA_URL": quote(video.name), **media})
    order = ET.SubElement(root, "TIME_ORDER")
    tier = ET.SubElement(root, "TIER", {"LINGUISTIC_TYPE_REF": "default-lt", "TIER_ID": TIER})
    for number, step in enumerate(video.steps, 1):
        slots = [f"ts{2 * number - 1}", f"ts{2 * number}"]
        for name, seconds in zip(slots, (step.start, step.end), strict=True):
            value = str(round(1000 * seconds))
            ET.SubElement(order, "TIME_SLOT", {"TIME_SLOT_ID": name, "TIME_VALUE": value})
        ends = {"TIME_SLOT_REF1": slots[0], "TIME_SLOT_REF2": slots[1]}
        annotation = ET.SubElement(
            ET.SubElement(tier, "ANNOTATION"),
            "ALIGNABLE_ANNOTATION",
            {"ANNOTATION_ID": f"a{number}", **ends},
        )
        ET.SubElement(annotation, "ANNOTATION_VALUE").text = plain_text(step.label)
    kind = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": "default-lt"}
    ET.SubElement(root, "LINGUISTIC_TYPE", {**kind, "TIME_ALIGNABLE": "true"})
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def labelstudio_text(video: Labelled) -> str:
    """Return a Label Studio task with predictions to accept or correct.

    Frames count from 1, the last one included, at the `fps` of the task's data, which the labelling
    configuration names as its rate.
    """
    results = [
        {
            "id": f"step{number}",
            "from_name": "videoLabels",
            "to_name": "video",
            "type": "timelinelabels",
            "score": round(step.score, 4),
            "value": {
                "ranges": [_frames(step, video.fps)],
                "timelinelabels": [plain_text(step.label)],
            },
        }
        for number, step in enumerate(video.steps, 1)
    ]
    length = sum(step.end - step.start for step in video.steps) or 1.0
    score = sum((step.end - step.start) * step.score for step in video.steps) / length
    prediction = {"model_version": video.model, "score": round(score, 4), "result": results}
    task = {"data": {"video": video.name, "fps": video.fps}, "predictions": [prediction]}
    return json.dumps([task], indent=2, ensure_ascii=False) + "\n"


def _frames(step: PredictedStep, fps: float) -> dict[str, int]:
    first = round(step.start * fps) + 1
    return {"start": first, "end": max(round(step.end * fps), first)}


def labelstudio_config(names: Sequence[str]) -> str:
    """Return Label Studio's configuration: all classes, and frames at each video's rate."""
    view = ET.Element("View")
    labels = ET.SubElement(view, "TimelineLabels", {"name": "videoLabels", "toName": "video"})
    for name in names:
        ET.SubElement(labels, "Label", {"value": plain_text(name)})
    ET.SubElement(view, "Video", {"name": "video", "value": "$video", "frameRate": "$fps"})
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


FORMATS: dict[str, tuple[str, Callable[[Labelled], str]]] = {
    "vtt": (".vtt", vtt_text),
    "eaf": (".eaf", eaf_text),
    "labelstudio": (".labelstudio.json", labelstudio_text),
}


def write_format(name: str, video: Labelled, folder: Path, stem: str) -> Path:
    """Write one video's steps and return the file."""
    suffix, text = FORMATS[name]
    path = folder / f"{stem}{suffix}"
    path.write_text(text(video), encoding="utf-8")
    return path


def write_config(folder: Path, names: Sequence[str]) -> Path:
    """Write Label Studio's labelling configuration for these classes and return the file."""
    path = folder / CONFIG
    path.write_text(labelstudio_config(names), encoding="utf-8")
    return path
