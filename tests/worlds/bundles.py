"""Small but complete data sets in the formats of the public ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

CLASSES = ("take", "open", "pour", "background")
GTEA = tuple(f"S{person}_{task}_C1" for task in ("Cheese", "Coffee") for person in (1, 2, 3, 4))


def frame_labels(number: int, frames: int, classes: Sequence[str] = CLASSES) -> list[str]:
    """Runs of 20 frames that show every class; another order for every video."""
    order = np.random.default_rng(number).permutation(len(classes))
    return [classes[order[frame // 20 % len(classes)]] for frame in range(frames)]


def features(number: int, frames: int, labels: Sequence[str], width: int = 8) -> np.ndarray:
    """[T, width] float32: the frame's number, then what tells its class, noise."""
    values = np.random.default_rng(number).normal(size=(frames, width)).astype(np.float32)
    values[:, 0] = np.arange(frames)
    for frame, label in enumerate(labels[:frames]):
        values[frame, 1 + sum(map(ord, label)) % (width - 1)] += 4
    return values


def write_bundle(
    folder: Path,
    names: Sequence[str] = GTEA,
    classes: Sequence[str] = CLASSES,
    time_first: bool = False,
    frames: int = 160,
    suffix: str = ".txt",
) -> None:
    """MS-TCN's layout; the last quarter of the names is tested in fold 1, the first in fold 2.

    Features have one frame more than labels, and no file ends with a newline.
    """
    for part in ("features", "groundTruth", "splits"):
        (folder / part).mkdir(parents=True)
    for number, name in enumerate(names):
        labels = frame_labels(number, frames, classes)
        array = features(number, frames + 1, labels)
        np.save(folder / f"features/{name}.npy", array if time_first else array.T)
        (folder / f"groundTruth/{name}.txt").write_text("\n".join(labels))
    mapping = "\n".join(f"{number} {name}" for number, name in enumerate(classes))
    (folder / "mapping.txt").write_text(mapping)
    quarter = max(1, len(names) // 4)
    for fold, test in ((1, names[-quarter:]), (2, names[:quarter])):
        train = [name for name in names if name not in test]
        for split, part in (("train", train), ("test", test)):
            text = "\n".join(f"{name}{suffix}" for name in part)
            (folder / f"splits/{split}.split{fold}.bundle").write_text(text)


CAMERAS = ("7150991-1431", "6510211-1431", "7151020-1431", "7151062-1431", "8421130-1431")
EGOPROCEL = (
    *(f"S07_Brownie_{camera}" for camera in CAMERAS),
    "OP01-R01-PastaSalad",
    "04.tent.120617.gopro",
    "Head_11",
    "Head_6",
    "0003",
)
ANNOTATED = {  # where EgoProceL has the annotations of a video, and what it calls them
    "S": "CMU-MMAC/Brownie/S07_Brownie_Video/{}.csv",
    "O": "EGTEA_Gaze+/PastaSalad/{}.csv",
    "04": "EPIC-Tents/{}.egoprocel.ann.csv",
    "Head_1": "pc_assembly/{}.csv",
    "Head_6": "pc_disassembly/{}.csv",
    "0003": "MECCANO/{}.csv",
}
STEPS = ("background", "crack the eggs", "stir  egg & milk", "open tent bag")


def write_egoprocel(folder: Path, frames: int = 120, annotations_fps: float | None = None) -> None:
    """FACT's layout: time first, names with spaces, one row of features too many.

    `annotations_fps` adds EgoProceL's own annotations in seconds, as that rate would have them.
    """
    for part in ("features", "groundTruth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(EGOPROCEL):
        labels = frame_labels(number, frames, STEPS)
        np.save(folder / f"features/{name}.npy", features(number, frames + 1, labels))
        (folder / f"groundTruth/{name}.txt").write_text("\n".join(labels))
        if annotations_fps is not None:
            last = max(k for k, label in enumerate(labels) if label != STEPS[0])
            place = next(place for start, place in ANNOTATED.items() if name.startswith(start))
            csv = folder / "annotations" / place.format(name)
            csv.parent.mkdir(parents=True, exist_ok=True)
            end = (last + 0.5) / annotations_fps
            csv.write_text(f'0.0,{end / 2},1 "crack, the eggs"\n{end / 2},{end},2. stir')
    (folder / "mapping.txt").write_text("\n".join(f"{k} {name}" for k, name in enumerate(STEPS)))
    (folder / "split1.train").write_text("\n".join(EGOPROCEL[:7]))
    (folder / "split1.test").write_text("\n".join(EGOPROCEL[7:]))
