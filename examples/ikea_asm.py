"""IKEA ASM in MS-TCN layout, from a checkout of henrikkirchmann/IKEA_ASM_UncertainEventLogs (MIT).

    python examples/ikea_asm.py CHECKOUT [DATA_ROOT/ikea_asm]

117 real furniture assemblies by 26 people (the data set's test split, 3.7 hours, 24 frames a
second). The repository holds class probabilities of the data set authors' I3D for three cameras,
averaged over runs of equal predicted label. A frame's features are the logarithms of its run's
probabilities, cameras side by side: 99 channels, constant within runs. A run's average knows where
the run ends, so features look ahead by the longest run; the I3D was trained on labels of other
takes of the data set. Folds are by person, about equally long.

It is the shortest example of own features: write four kinds of files, say the rate, run.

    features/<take>.npy [T, D]    groundTruth/<take>.txt, a class name per frame
    mapping.txt                   splits/{train,test}.split<fold>.bundle      groups.csv
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

LOGS = Path("paper_event_logs/ikea_asm/split=test")
FILE = "ikea_asm__test__clip_based__i3d__{camera}__pretrained__{what}"
CAMERAS = ("dev1", "dev2", "dev3")
FLOOR = 1e-3  # of a probability, before its logarithm
FPS = 24
FOLDS = 5
BACKGROUND = "NA"


def read_runs(checkout: Path, folder: str, camera: str, what: str) -> pd.DataFrame:
    """The runs of a file: take, first and last frame (inclusive), and what was said about them."""
    path = checkout / LOGS / folder / FILE.format(camera=camera, what=what)
    if not path.is_file():
        raise SystemExit(f"error: {path}: no such file; give the checkout's own folder")
    runs = pd.read_csv(path, keep_default_na=False)  # the background class is called NA
    runs["take"] = runs["case_name"].str.replace("/", "-")
    runs["frames"] = runs["end_timestamp"] - runs["start_timestamp"] + 1
    return runs.sort_values(["take", "start_timestamp"])


def frame_features(runs: pd.DataFrame, classes: list[str]) -> np.ndarray:
    """Log-probabilities [T, classes] of one take's runs, every frame as its run."""
    found = [json.loads(text) for text in runs["avg_probs_json"]]
    probability = np.array([[run[name] for name in classes] for run in found])
    rows = np.log(np.maximum(probability, FLOOR)).astype(np.float16)
    return np.repeat(rows, runs["frames"], axis=0)


def person_folds(frames: Mapping[str, int]) -> dict[str, int]:
    """A fold from 1 on for every person: the longest first, each into the shortest fold so far."""
    total = dict.fromkeys(range(1, FOLDS + 1), 0)
    fold_of = {}
    for person in sorted(frames, key=lambda name: (-frames[name], name)):
        fold_of[person] = min(total, key=lambda fold: (total[fold], fold))
        total[fold_of[person]] += frames[person]
    return fold_of


def write_takes(checkout: Path, truth: pd.DataFrame, classes: list[str], out: Path) -> float:
    """Features and labels of every take; returns the longest run in seconds."""
    cameras = [read_runs(checkout, "pred_merged", c, "segments_pred.csv.gz") for c in CAMERAS]
    by_take = [dict(list(runs.groupby("take"))) for runs in cameras]
    for take, runs in truth.groupby("take"):
        features = [frame_features(found[take], classes) for found in by_take]
        np.save(out / "features" / f"{take}.npy", np.concatenate(features, axis=1))
        labels = np.repeat(runs["gt_label_name"].to_numpy(), runs["frames"])
        write_lines(out / "groundTruth" / f"{take}.txt", labels.tolist())
    return max(int(runs["frames"].max()) for runs in cameras) / FPS


def write_splits(truth: pd.DataFrame, out: Path) -> None:
    """Bundles of every fold, and who is seen in which take."""
    people = truth["case_name"].str.extract(r"/(\d+)_", expand=False)  # 0025 of Bench/0025_...
    frames = {str(person): int(n) for person, n in truth.groupby(people)["frames"].sum().items()}
    fold_of = person_folds(frames)
    person_of = dict(sorted(zip(truth["take"], people, strict=True)))
    rows = [f"{take},{person}" for take, person in person_of.items()]
    write_lines(out / "groups.csv", ["take,participant", *rows])
    for fold in range(1, FOLDS + 1):
        for split in ("train", "test"):
            names = [t for t, p in person_of.items() if (fold_of[p] == fold) == (split == "test")]
            write_lines(out / "splits" / f"{split}.split{fold}.bundle", [f"{n}.txt" for n in names])


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def convert(checkout: Path, out: Path) -> str:
    """Writes the folder and says what is in it."""
    truth = read_runs(checkout, "gt_aligned", "dev1", "gt_segments.csv")
    classes = [BACKGROUND, *sorted(set(truth["gt_label_name"]) - {BACKGROUND})]
    for folder in ("features", "groundTruth", "splits"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    longest = write_takes(checkout, truth, classes, out)
    write_lines(out / "mapping.txt", [f"{n} {name}" for n, name in enumerate(classes)])
    write_splits(truth, out)
    hours = truth["frames"].sum() / FPS / 3600
    return (
        f"{out}: {truth['take'].nunique()} takes, {hours:.1f} hours, {len(classes)} classes, "
        f"{FOLDS} folds; the longest run has {longest:g} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="the cloned repository")
    parser.add_argument("out", type=Path, nargs="?", default=Path("ikea_asm"))
    options = parser.parse_args()
    print(convert(options.checkout, options.out))


if __name__ == "__main__":
    main()
