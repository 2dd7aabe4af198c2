"""A small data set of real patch files: the label stands in one cell, the rest is noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from pjepa.core.tables import Classes
from pjepa.patches.store import patch_writer, take_file_name
from pjepa.pooler.takes import PoolerTakes, pooler_takes
from tests.patches.patch_infos import patch_info

FPS = 4.0
CLASSES = Classes(("background", "a", "b", "c"), 0)
WIDTH = 8
INFO = patch_info(crop=32, grid=2, rows=2, columns=2, width=WIDTH)
SPLITS = ["train"] * 10 + ["val", "test"]


class World:
    """12 takes of 8 segments each: 8 to train on, 2 held out, one val, one test."""

    def __init__(
        self, folder: Path, unknown: bool = False, rare: bool = False, fps: float = FPS
    ) -> None:
        """`unknown` segments have no label; `rare` leaves one segment of one take to class 3."""
        self.info = replace(INFO, tokens_fps=fps)
        self.folder, self.patches, rows = folder, {}, []
        self.table = pd.DataFrame(
            {
                "take_id": [f"t{n}" for n in range(12)],
                "split": SPLITS,
                "holdout": [n in (8, 9) for n in range(12)],
                "group": [f"g{n // 2}" for n in range(12)],
            }
        )
        for number in range(12):
            rng = np.random.default_rng(number)
            lengths = rng.integers(3, 12, 8)
            labels = rng.integers(0, 3 if rare else 4, 8)
            if rare and number == 0:
                labels[2] = 3
            ends = np.cumsum(lengths)
            for place, (length, end, label) in enumerate(zip(lengths, ends, labels, strict=True)):
                known = -1 if unknown and place % 3 == 0 else int(label)
                rows.append((f"t{number}", place, (end - length) / fps, end / fps, known))
            self._write(f"t{number}", np.repeat(labels, lengths), rng)
        columns = ["take_id", "segment", "start_s", "end_s", "label"]
        self.segments = pd.DataFrame(rows, columns=columns)

    def _write(self, take_id: str, labels: np.ndarray, rng: np.random.Generator) -> None:
        patches = rng.normal(size=(len(labels), 4, WIDTH))
        patches[:, 2, :4] += 3 * np.eye(4)[labels]
        self.patches[take_id] = patches.astype(np.float16)
        with patch_writer(self.folder / take_file_name(take_id), self.info, len(labels)) as writer:
            writer.append(self.patches[take_id])

    def labels(self, take_id: str) -> np.ndarray:
        """The label of every step, -1 unknown."""
        part = self.segments[self.segments["take_id"] == take_id]
        lengths = ((part["end_s"] - part["start_s"]) * self.info.tokens_fps).round().astype(int)
        return np.repeat(part["label"].to_numpy(), lengths)

    def takes(self, per_step: int = 1) -> PoolerTakes:
        return pooler_takes(self.table, self.segments, CLASSES, self.folder, per_step)
