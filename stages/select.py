"""`select`: which snapshot becomes the encoder. Labels are read only if `select.by` asks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import torch

from pjepa.core.section import read_section
from pjepa.core.tables import pretraining_takes, read_takes
from pjepa.select.config import SelectConfig
from pjepa.select.familiar import fit_familiar
from pjepa.select.selection import best_epoch, read_judge, snapshot_scores
from pjepa.storage.reading import content_sha256, fingerprint, read_object
from pjepa.storage.work import work_folder
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.streams.provenance import SelectionLabels, widest_selection
from pjepa.streams.stream import read_stream
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import InputError, say


def run() -> None:
    config = read_section(SelectConfig, "select")
    snapshots = {int(path.name): path for path in sorted(paths.SNAPSHOTS.glob("[0-9]*"))}
    if not snapshots:
        raise InputError(f"{paths.SNAPSHOTS}: no snapshot; run `dvc repro pretrain`")
    if config.by == "last":
        write_encoder(config, snapshots, max(snapshots), {})
        return
    files = (paths.STREAM, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    judge = read_judge(files, config.by, config.metric, config)
    inputs = (*files, paths.SNAPSHOTS)  # so that queued experiments do not share work
    key = fingerprint(config.resume_key(), [content_sha256(path) for path in inputs])
    with work_folder("select", key) as work:
        scores = snapshot_scores(list(snapshots.values()), judge, work)
        write_encoder(config, snapshots, best_epoch(scores), scores)


def write_encoder(
    config: SelectConfig, snapshots: dict[int, Path], epoch: int, scores: dict[int, float]
) -> None:
    """Copy the chosen snapshot and report how it was chosen."""
    labels = selection_labels(config.by)
    with atomic_folder(paths.ENCODER) as folder:
        for file in (*snapshots[epoch].glob("*.safetensors"), snapshots[epoch] / "config.json"):
            shutil.copyfile(file, folder / file.name)  # the encoder, and heads if there are any
        selection = {
            "by": config.by,
            "metric": config.metric if scores else None,
            "epoch": epoch,
            "selection_labels": labels,
            "scores": scores,
        }
        write_json(folder / "selection.json", selection)
        write_familiar(config, folder)
    how = f"best {config.metric} on {config.by}" if scores else "the last snapshot"
    say(f"select: epoch {epoch}, {how}; labels used to choose: {labels}")


def write_familiar(config: SelectConfig, folder: Path) -> None:
    """Store what training tokens are like, so that `pjepa predict` notices other videos."""
    torch.set_num_threads(config.threads)
    takes = read_takes(paths.TAKES_TABLE)
    seen = takes[takes["take_id"].isin(pretraining_takes(takes))]
    groups = dict(zip(seen["take_id"], seen["group"], strict=True))
    familiar = fit_familiar(read_stream(paths.STREAM), groups)
    if familiar is not None:
        familiar.save(folder)


def selection_labels(by: Literal["last", "holdout", "val"]) -> SelectionLabels:
    """Return the widest labels used in a choice, including that of an initial encoder."""
    origin = paths.SNAPSHOTS / "origin.json"  # written when pretraining starts from an encoder
    before: SelectionLabels = "none"
    if origin.exists():
        before = read_object(origin, "selection_labels")["selection_labels"]
    return widest_selection("none" if by == "last" else by, before)


if __name__ == "__main__":
    stage_main(run)
