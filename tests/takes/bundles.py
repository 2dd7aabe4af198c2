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
