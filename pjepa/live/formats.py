"""Predicted steps as files of other tools: subtitles, ELAN, Label Studio.

`vtt` shows the steps in any player; `eaf` and `labelstudio` can be corrected by hand and read back
by the `folder` source. Labels are text inside these files, never markup.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

TIER = "steps"


@dataclass(frozen=True)
class Step:
    """One predicted step of a video."""

    start: float
    end: float
    label: str
    score: float


@dataclass(frozen=True)
class Labelled:
    """A video and its steps in order."""

    video: str  # its file name
    fps: float
    steps: Sequence[Step]


def vtt_text(found: Labelled) -> str:
    """WebVTT: one cue per step."""
    cues = [
        f"{number}\n{_clock(step.start)} --> {_clock(step.end)}\n{_cue(step.label)}\n"
        for number, step in enumerate(found.steps, 1)
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _clock(seconds: float) -> str:
    total = round(1000 * seconds)
    return (
        f"{total // 3_600_000:02d}:{total // 60_000 % 60:02d}:{total // 1000 % 60:02d}."
        f"{total % 1000:03d}"
    )


def _cue(label: str) -> str:
    """A label as one line of cue text, whose markup characters are escaped."""
    plain = " ".join(label.split())
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def eaf_text(found: Labelled) -> str:
    """ELAN: one tier of time-aligned annotations, times in milliseconds."""
    root = ET.Element(
        "ANNOTATION_DOCUMENT",
        {"AUTHOR": "pjepa", "DATE": "1970-01-01T00:00:00+00:00", "FORMAT": "3.0", "VERSION": "3.0"},
    )
    header = ET.SubElement(root, "HEADER", {"MEDIA_FILE": "", "TIME_UNITS": "milliseconds"})
    media = {"MIME_TYPE": "video/*", "RELATIVE_MEDIA_URL": f"./{quote(found.video)}"}
    ET.SubElement(header, "MEDIA_DESCRIPTOR", {"MEDIA_URL": quote(found.video), **media})
    order = ET.SubElement(root, "TIME_ORDER")
    tier = ET.SubElement(root, "TIER", {"LINGUISTIC_TYPE_REF": "default-lt", "TIER_ID": TIER})
    for number, step in enumerate(found.steps, 1):
        slots = [f"ts{2 * number - 1}", f"ts{2 * number}"]
        for name, seconds in zip(slots, (step.start, step.end), strict=True):
            value = str(round(1000 * seconds))
            ET.SubElement(order, "TIME_SLOT", {"TIME_SLOT_ID": name, "TIME_VALUE": value})
        part = ET.SubElement(
            ET.SubElement(tier, "ANNOTATION"),
            "ALIGNABLE_ANNOTATION",
            {
                "ANNOTATION_ID": f"a{number}",
                "TIME_SLOT_REF1": slots[0],
                "TIME_SLOT_REF2": slots[1],
            },
        )
        ET.SubElement(part, "ANNOTATION_VALUE").text = step.label
    kind = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": "default-lt"}
    ET.SubElement(root, "LINGUISTIC_TYPE", {**kind, "TIME_ALIGNABLE": "true"})
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def labelstudio_text(found: Labelled) -> str:
    """A Label Studio task with timeline labels; frames count from 1, the last one included."""
    results = [
        {
            "id": f"step{number}",
            "from_name": "videoLabels",
            "to_name": "video",
            "type": "timelinelabels",
            "value": {
                "ranges": [
                    {
                        "start": round(step.start * found.fps) + 1,
                        "end": max(round(step.end * found.fps), round(step.start * found.fps) + 1),
                    }
                ],
                "timelinelabels": [step.label],
            },
        }
        for number, step in enumerate(found.steps, 1)
    ]
    task = {"id": 1, "data": {"video": found.video}, "annotations": [{"id": 1, "result": results}]}
    return json.dumps([task], indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, tuple[str, Callable[[Labelled], str]]] = {
    "vtt": (".vtt", vtt_text),
    "eaf": (".eaf", eaf_text),
    "labelstudio": (".labelstudio.json", labelstudio_text),
}


def write_format(name: str, found: Labelled, folder: Path, stem: str) -> Path:
    """Writes one video's steps; returns the file."""
    suffix, text = FORMATS[name]
    path = folder / f"{stem}{suffix}"
    path.write_text(text(found), encoding="utf-8")
    return path
