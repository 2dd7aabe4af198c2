"""A project with one representation of five takes; one has gaps, one no label at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pjepa.core.runs import token_offsets
from pjepa.core.tables import TAKES, Classes, write_classes, write_table
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels
from pjepa.takes.source import take_row
from pjepa.tools import paths

CLASSES = Classes(("background", "cut bread", "pour"), 0)
SPLITS = {
    "kitchen/1": "train", "S1.take": "train", "späte Aufnahme": "test", "v": "val",
    "new": "pretrain",
}  # fmt: skip


def write_represented(folder: Path) -> tuple[dict[str, Take], dict[str, np.ndarray]]:
    """Write stream, labels, takes and classes; return the takes and their labels."""
    rng, takes, labels = np.random.default_rng(0), {}, {}
    path = folder / paths.representation("pjepa") / "stream.parquet"
    with StreamWriter(path, StreamInfo(source="test", fps=4.0, width=3), "float32") as writer:
        for count, name in enumerate(SPLITS, 6):
            segment = np.repeat([-1, 0, 1], [1, 2, count - 3])
            features = rng.normal(size=(count, 3)).astype(np.float32)
            times = np.arange(count) / 4
            takes[name] = Take(name, features, times, segment, token_offsets(segment))
            known = np.append(segment[1:] + 1, 1)
            labels[name] = np.full(count, -1) if name == "new" else known
            writer.write(takes[name])
    labels["kitchen/1"][2] = -1
    label_rows = [(name, takes[name].times, label) for name, label in labels.items()]
    write_labels(folder / paths.LABELS, label_rows)
    rows = [
        {**take_row(name, "d", split, task="disassembly", view="ego/1"), "holdout": False}
        for name, split in SPLITS.items()
    ]
    write_table(folder / paths.TAKES_TABLE, rows, TAKES)
    write_classes(folder / paths.CLASSES, CLASSES)
    return takes, labels
