"""`select`: which snapshot becomes the encoder. Labels are read only if `select.by` asks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from pjepa import paths
from pjepa.config.section import read_section
from pjepa.config.select import SelectConfig
from pjepa.errors import InputError
from pjepa.probes.selection import best_epoch, read_judge, snapshot_scores
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.streams.schema import SelectionLabels, widest_selection
from pjepa.work import content_sha256, fingerprint, read_json, whole_folder, work_folder, write_json


def run() -> None:
    config = read_section(SelectConfig, "select")
    snapshots = {int(path.name): path for path in sorted(paths.SNAPSHOTS.glob("[0-9]*"))}
    if not snapshots:
        raise InputError(f"{paths.SNAPSHOTS}: no snapshot; run `dvc repro pretrain`")
    if config.by == "last":
        write_encoder(config, snapshots, max(snapshots), {})
        return
    files = (paths.STREAM, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    judge = read_judge(*files, config)
    inputs = (*files, paths.SNAPSHOTS)  # queued experiments judge their own, side by side
    key = fingerprint(config.model_dump(), [content_sha256(path) for path in inputs])
    with work_folder("select", key) as work:
        scores = snapshot_scores(list(snapshots.values()), judge, work)
        write_encoder(config, snapshots, best_epoch(scores), scores)


def write_encoder(
    config: SelectConfig, snapshots: dict[int, Path], epoch: int, scores: dict[int, float]
) -> None:
    """Copies the chosen snapshot and says how it was chosen."""
    labels = selection_labels(config.by)
    with whole_folder(paths.ENCODER) as folder:
        for name in ("model.safetensors", "config.json"):
            shutil.copyfile(snapshots[epoch] / name, folder / name)
        selection = {
            "by": config.by,
            "metric": config.metric if scores else None,
            "epoch": epoch,
            "selection_labels": labels,
            "scores": scores,
        }
        write_json(folder / "selection.json", selection)
    how = f"best {config.metric} on {config.by}" if scores else "the last snapshot"
    say(f"select: epoch {epoch}, {how}; labels used to choose: {labels}")


def selection_labels(by: Literal["last", "holdout", "val"]) -> SelectionLabels:
    """The widest labels that took part in a choice, an initial encoder's own choice included."""
    origin = paths.SNAPSHOTS / "origin.json"  # written when pretraining starts from an encoder
    before: SelectionLabels = "none"
    if origin.exists():
        before = read_json(origin)["selection_labels"]
    return widest_selection("none" if by == "last" else by, before)


if __name__ == "__main__":
    stage_main(run)
