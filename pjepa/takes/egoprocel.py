"""The `egoprocel` source: EgoProceL as FACT packages it (I3D features, one label per frame).

`features/<video>.npy` [T, 2048], `groundTruth/<video>.txt`, `mapping.txt`, `split1.train|test`.
The rate of the features is written nowhere: it is measured where EgoProceL's own annotations, which
are in seconds, stand in `annotations/`, and is the public extractor's 10 per second otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pjepa.config.data import DataConfig, EgoProceLConfig
from pjepa.errors import InputError
from pjepa.roots import inside
from pjepa.takes.framewise import (
    Layout,
    framewise_source,
    read_frame_labels,
    read_mapping,
    read_split,
)
from pjepa.takes.manifest import Classes, FeatureInfo
from pjepa.takes.source import Source, take_row
from pjepa.takes.text_files import file_text

EXTRACTOR_FPS = 10.0
WINDOW = 64  # frames an I3D feature has seen, centred on its own: 32 at stride 2
AGREE = 0.02  # measured rates of the videos may differ by this share
WHOLE = 0.01  # a measured rate this near a whole number is that number
CAMERAS = {
    "7150991": "ego", "6510211": "back", "7151020": "top", "7151062": "right",
    "8421130": "left-top",
}  # fmt: skip


def egoprocel_source(own: EgoProceLConfig, config: DataConfig, root: Path) -> Source:
    """FACT's only split: train trains, test is reported."""
    base = root if own.path == "." else inside(root, own.path, "the data root")
    classes = read_mapping(base / "mapping.txt")
    splits = {split: read_split(base / f"split1.{split}") for split in ("train", "test")}
    fps, how = _rate(own, base, classes, [name for part in splits.values() for name in part])
    features = FeatureInfo("I3D of FACT, RGB, Kinetics-400", WINDOW / 2 / fps)
    turn = (
        "FACT's arrays of EgoProceL are [T, D]; transpose them, or read them as data.source=mstcn"
    )
    layout = Layout("egoprocel", root, own.path, fps, True, features, turn=turn)
    source = framewise_source(layout, classes, splits, config)
    takes = [take_of_video(take["take_id"], take["split"]) for take in source.takes]
    notes = [*source.notes, f"features at {fps:g} per second: {how}"]
    return Source(source.videos, takes, source.segments, classes, features, source.skipped, notes)


def take_of_video(name: str, split: str) -> dict[str, str]:
    """What a video's name tells: data set, session, person, camera.

    The cameras of one CMU-MMAC session show the same minutes: they are one recording.
    """
    if match := re.fullmatch(r"(?P<person>S\d+)_(?P<task>[A-Za-z]+)_(?P<camera>\d+).*", name):
        person, task, camera = match.group("person", "task", "camera")
        return take_row(
            name, "CMU-MMAC", split, task=task, recording=f"{person}_{task}", participant=person,
            view=CAMERAS.get(camera, camera),
        )  # fmt: skip
    if match := re.fullmatch(r"(?P<person>O?P\d+)-R\d+-(?P<task>\w+).*", name):
        person, task = match.group("person", "task")
        return take_row(name, "EGTEA", split, task=task, participant=person, view="ego")
    if "tent" in name.lower():
        person = name.split(".")[0] if name[:1].isdigit() else ""
        return take_row(name, "EPIC-Tents", split, task="tent", participant=person, view="ego")
    if "head" in name.lower():
        task = "disassembly" if "dis" in name.lower() else "assembly"
        return take_row(name, "PC", split, task=task, view="ego")
    if name.startswith("00"):
        return take_row(name, "MECCANO", split, task="toy bike", view="ego")
    return take_row(name, "egoprocel", split)


def _rate(
    own: EgoProceLConfig, base: Path, classes: Classes, names: list[str]
) -> tuple[float, str]:
    """Rows per second, and how that is known."""
    if own.fps is not None:
        return own.fps, "data.egoprocel.fps"
    files = {path.stem: path for path in sorted((base / "annotations").glob("**/*.csv"))}
    both = [name for name in names if name in files]
    rates = [rate for name in both if (rate := _measured(base, name, files[name], classes))]
    if not rates:
        return EXTRACTOR_FPS, "the extractor's; no annotations in seconds to measure it by"
    rate = round(float(np.median(rates)), 2)
    if abs(rate / max(1, round(rate)) - 1) < WHOLE:
        rate = float(round(rate))
    odd = sum(abs(value / rate - 1) > AGREE for value in rates)
    if odd > len(rates) // 10:
        raise InputError(
            f"{base}: the features' rate differs between videos ({min(rates):.2f} to "
            f"{max(rates):.2f} per second in {len(rates)}); set data.egoprocel.fps"
        )
    return rate, f"measured on {len(rates)} videos with annotations in seconds"


def _measured(base: Path, name: str, annotation: Path, classes: Classes) -> float | None:
    """Rows per second of one video: its last labelled row over its last annotated second."""
    ids = {label: number for number, label in enumerate(classes.names)}
    truth = base / "groundTruth" / f"{name}.txt"
    if not truth.is_file():
        return None
    steps = np.flatnonzero(read_frame_labels(truth, ids) != (classes.background or 0))
    last = max((end for _, end in read_seconds(annotation)), default=0.0)
    return float(steps[-1]) / last if len(steps) and last > 0 else None


def read_seconds(path: Path) -> list[tuple[float, float]]:
    """(start, end) seconds of an EgoProceL annotation: no header, `start, end, number step`."""
    spans = []
    for number, line in enumerate(file_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            start, end, _ = line.split(",", 2)  # a step's name may hold commas and quotes
            spans.append((float(start), float(end)))
        except ValueError:
            raise InputError(
                f"{path}, line {number}: expected `start, end, step`, found {line!r}"
            ) from None
    return spans
