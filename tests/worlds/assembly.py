"""Assembly101 in small: coarse annotations as published, a real LMDB of TSM rows."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np

VIEW = "C10119_rgb"
ACTIONS = ("attach wheel", "detach wheel", "inspect toy", "screw chassis")
SEQUENCES = [
    f"nusar-2021_action_both_90{k}-a0{k}_90{k}_user_id_2021-02-19_08373{k}" for k in range(3)
]
SPLITS = {"train": SEQUENCES[:1], "val": SEQUENCES[1:2], "test": SEQUENCES[2:]}
FRAMES = 400  # of every recording, counted from 1
SPANS = {"assembly": (21, 181), "disassembly": (201, 390)}  # first and end frame of the labels


def row_of(number: int, frame: int) -> np.ndarray:
    return np.full(2048, number * 1000 + frame, np.float32)


def write_annotations(folder: Path) -> None:
    coarse = folder / "coarse-annotations"
    (coarse / "coarse_labels").mkdir(parents=True)
    (coarse / "coarse_splits").mkdir()
    lines = [f"{k},0,0,{name},verb,noun" for k, name in enumerate(ACTIONS)]
    head = "action_id,verb_id,noun_id,action_cls,verb_cls,noun_cls"
    (coarse / "actions.csv").write_text("\n".join([head, *lines]))
    for split, sequences in SPLITS.items():
        for kind, (first, end) in SPANS.items():
            toy = "" if split == "test" else "\ta08\texcavator"
            text = "\n".join(f"{kind}_{name}.txt\t1{toy}" for name in sequences)
            (coarse / f"coarse_splits/{split}_coarse_{kind}.txt").write_text(text)
            for name in sequences if split != "test" else []:
                middle = (first + end) // 2
                rows = [f"{first}\t{middle}\tattach wheel\t", f"{middle}\t{end}\tinspect toy\tx"]
                (coarse / f"coarse_labels/{kind}_{name}.txt").write_text("\n".join(rows))


def write_lmdb(folder: Path, lost: int | None = None, frames: int = FRAMES) -> None:
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 26) as store, store.begin(write=True) as writer:
        for number, name in enumerate(SEQUENCES):
            for frame in range(1, frames + 1):
                if frame != lost:
                    key = f"{name}/{VIEW}/{VIEW}_{frame:010d}.jpg".encode()
                    writer.put(key, row_of(number, frame).tobytes())


def write_arrays(folder: Path) -> None:
    """The same rows as numpy files: column f is frame f."""
    for number, name in enumerate(SEQUENCES):
        file = folder / "TSM_features" / name / VIEW / "features.npy"
        file.parent.mkdir(parents=True)
        rows = np.stack([row_of(number, frame) for frame in range(FRAMES + 1)])
        np.save(file, np.ascontiguousarray(rows.T))
