"""A small world for cells: 14 takes, four classes, features that show them."""

from pathlib import Path

import numpy as np

from pjepa.core.tables import TAKES, Classes, write_classes, write_table
from pjepa.probes.base.cell import CellInputs
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.linear.config import LinearConfig, PaperFitConfig
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels

COMMON = ProbeCommonConfig(bootstrap=50, threads=1)
LINEAR = LinearConfig(l2=(1e-1, 1e-2), paper=PaperFitConfig(epochs=2))
NAMES = ("idle", 'turn "on", slowly', "place\npart", "=1+1")
WIDTH, FPS = 6, 4.0


def takes_rows() -> list[dict]:
    splits = ["train"] * 8 + ["val"] * 2 + ["test"] * 4
    same = {"dataset": "d", "task": "t", "participant": "p", "view": "v"}
    return [
        {"take_id": f"take {i}", "split": split, "holdout": i in (6, 7)}
        | {**same, "recording": f"r{i}", "group": f"g{i // 2}"}
        for i, split in enumerate(splits)
    ]


def world(
    folder: Path, variants: int = 1, test_labels: bool = True, annotated: bool = True
) -> CellInputs:
    """Writes everything a cell reads; segments are five tokens long, or unknown."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(len(NAMES), WIDTH))
    labels, streams = [], []
    for row in takes_rows():
        label = np.repeat(random.integers(0, len(NAMES), 8), 5)
        label[:2] = -1
        if row["split"] == "test" and not test_labels:
            label[:] = -1
        labels.append((row["take_id"], np.arange(40) / FPS, label))
    for variant in range(variants):
        name = "stream.parquet" if variants == 1 else f"{variant}/stream.parquet"
        info = StreamInfo(source="test", fps=FPS, width=WIDTH, provenance=Provenance(lookahead_s=2))
        noise = np.random.default_rng(variant)
        with StreamWriter(folder / name, info) as writer:
            for take, times, label in labels:
                features = centres[label] + noise.normal(size=(40, WIDTH))
                segment = np.arange(40) // 5 if annotated else np.full(40, -1)
                writer.write(Take(take, features, times, segment, np.arange(40) % 5))
        streams.append(folder / name)
    write_labels(folder / "labels.parquet", labels)
    write_table(folder / "takes.parquet", takes_rows(), TAKES)
    write_classes(folder / "classes.json", Classes(NAMES, 0))
    tables = (folder / f"{name}" for name in ("labels.parquet", "takes.parquet", "classes.json"))
    return CellInputs(streams, *tables)
