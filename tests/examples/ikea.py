"""A miniature of the repository with IKEA ASM's event logs: same files, same columns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from examples.ikea_asm import CAMERAS, FILE, LOGS

CLASSES = ("NA", "flip table", "pick up leg", "spin leg")
PEOPLE = ("0001", "0002", "0003", "0004", "0006", "0010")
RUNS = 12  # true runs of a take
FRAMES = 48  # of the shortest true run


def write_checkout(folder: Path) -> None:
    """Two takes of each person; three cameras that predict the truth, a little late."""
    rows: dict[str, list[dict[str, object]]] = {"truth": [], **{c: [] for c in CAMERAS}}
    for case, person in enumerate(PEOPLE * 2):
        name = f"Lack_Side_Table/{person}_oak_floor_{case:02d}"
        rng = np.random.default_rng(case)
        lengths = FRAMES + 6 * rng.integers(0, 4, RUNS)
        for what, found in rows.items():
            late = 0 if what == "truth" else 7
            cuts = np.cumsum(lengths) + late
            cuts[-1] -= late
            start = 0
            for place, end in enumerate(cuts.tolist()):
                label = CLASSES[(place + case % 2) % len(CLASSES)]
                found.append(run(name, start, end - 1, label, rng))
                start = end
    for folder_name in ("gt_aligned", "pred_merged"):
        (folder / LOGS / folder_name).mkdir(parents=True)
    write(rows["truth"], folder, "gt_aligned", "dev1", "gt_segments.csv")
    for camera in CAMERAS:
        write(rows[camera], folder, "pred_merged", camera, "segments_pred.csv.gz")


def run(
    name: str, first: int, last: int, label: str, rng: np.random.Generator
) -> dict[str, object]:
    """One row; the probabilities favour its label."""
    chance = rng.dirichlet([8.0 if c == label else 1.0 for c in CLASSES])
    return {
        "case_name": name,
        "start_timestamp": first,
        "end_timestamp": last,
        "gt_label_name": label,
        "avg_probs_json": json.dumps(dict(zip(CLASSES, chance.tolist(), strict=True))),
    }


def write(rows: list[dict[str, object]], folder: Path, part: str, camera: str, what: str) -> None:
    path = folder / LOGS / part / FILE.format(camera=camera, what=what)
    pd.DataFrame(rows).to_csv(path, index=False)
