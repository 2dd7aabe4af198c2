"""The `egoprocel` source: EgoProceL as FACT packages it (I3D features, one label per frame).

`features/<video>.npy` [T, 2048], `groundTruth/<video>.txt`, `mapping.txt`, `split1.train|test`.
The files do not state the rate of the features: it is measured if `annotations/` holds EgoProceL's
own annotations, which are in seconds, and is the public extractor's 10 per second otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from pjepa.core.tables import Classes, FeatureInfo
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, as_number, file_lines
from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source, take_row
from pjepa.takes.sources.mstcn import (
    OTHER,
    FolderLayout,
    frame_segments,
    framewise_source,
    read_mapping,
    read_split,
)
from pjepa.ui.console import InputError

EXTRACTOR_FPS = 10.0
WINDOW = 64  # frames an I3D feature has seen, centred on its own: 32 at stride 2
AGREE = 0.02  # measured rates of the videos may differ by this share
WHOLE = 0.01  # a measured rate this near a whole number is that number
CAMERAS = {
    "7150991": "ego", "6510211": "back", "7151020": "top", "7151062": "right",
    "8421130": "left-top",
    "7150996": "ego",  # in sessions without 7150991, the next serial number
}  # fmt: skip
TENTS = ".egoprocel.ann"  # stands between name and suffix of EPIC-Tents' annotations


def egoprocel_source(config: DataConfig, root: Path) -> Source:
    """Return the takes of FACT's only split: train trains, test is reported."""
    own = config.egoprocel
    base = inside(root, own.path, "the data root")
    classes = read_mapping(base / "mapping.txt")
    splits = {split: read_split(base / f"split1.{split}") for split in ("train", "test")}
    files = sorted((base / "annotations").glob("**/*.csv"))  # EgoProceL's own
    annotations = {path.stem.removesuffix(TENTS): path for path in files}
    used = {name: annotations[name] for name in chain(*splits.values()) if name in annotations}
    fps, how = (own.fps, "data.egoprocel.fps") if own.fps else _rate(base, classes, used)
    features = FeatureInfo("I3D of FACT, RGB, Kinetics-400", WINDOW / 2 / fps)
    turn = (
        "FACT's arrays of EgoProceL are [T, D]; transpose them, or read them as data.source=mstcn"
    )
    layout = FolderLayout("egoprocel", root, own.path, fps, True, features, turn, OTHER)
    source = framewise_source(layout, classes, splits, config)
    folders = {name: path.parent.name for name, path in used.items()}
    takes = [
        take_of_video(take["take_id"], take["split"], folders.get(take["take_id"], ""))
        for take in source.takes
    ]
    notes = [*source.notes, Note(f"features at {fps:g} per second: {how}")]
    return replace(source, takes=takes, notes=notes)


def take_of_video(name: str, split: str, folder: str = "") -> dict[str, str]:
    """Return data set, session, person and camera, from the video's name and annotation folder.

    The cameras of one CMU-MMAC session show the same minutes: they are one recording. PC videos are
    called alike: Head_5, 7, 11 are of `pc_assembly`, Head_6, 8 of `pc_disassembly`.
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
        name_or_folder = (folder if folder.startswith("pc_") else name).lower()
        number = re.search(r"\d+$", name_or_folder)
        even = number is not None and int(number.group()) % 2 == 0
        task = "disassembly" if "dis" in name_or_folder or even else "assembly"
        return take_row(name, "PC", split, task=task, view="ego")
    if name.startswith("00"):
        return take_row(name, "MECCANO", split, task="toy bike", view="ego")
    return take_row(name, "egoprocel", split)


def _rate(base: Path, classes: Classes, annotations: Mapping[str, Path]) -> tuple[float, str]:
    """Return rows per second, and how that is known."""
    rates = [r for name, path in annotations.items() if (r := _measured(base, name, path, classes))]
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
    """Return rows per second of one video: its last labelled row over its last annotated second."""
    truth = base / "groundTruth" / f"{name}.txt"
    if not truth.is_file():
        return None
    ids = {label: number for number, label in enumerate(classes.names)}
    background = classes.background or 0
    steps = [stop for _, stop, label in frame_segments(truth, ids) if label != background]
    last = max(_ends(annotation), default=0.0)
    return (steps[-1] - 1) / last if steps and last > 0 else None


def _ends(path: Path) -> Iterator[float]:
    """Yield the ends in seconds of an annotation without header: `start, end, number step`."""
    for where, line in file_lines(path):
        cells = line.split(",", 2)  # a step's name may hold commas and quotes
        if line and len(cells) < 3:
            raise InputError(f"{where}: expected `start, end, step`, found {line!r}")
        if line:
            _, end = (as_number(cell, where, "`start, end, step` in seconds") for cell in cells[:2])
            yield end
