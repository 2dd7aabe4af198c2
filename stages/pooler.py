"""`pooler`: how patches become tokens. `mean` has nothing to train; `action` reads train labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.core.section import read_section
from pjepa.core.tables import SHIPPED, read_classes, read_segments, read_takes
from pjepa.patches.store import PatchInfo
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.stored import CONFIG, common_config
from pjepa.storage.reading import file_sha256, fingerprint, read_object
from pjepa.storage.work import work_folder
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import InputError, say


def run() -> None:
    """Write `models/pooler` and, under `results/pooler`, the curves of its training."""
    config = read_section(PoolerConfig, "pooler")
    patches = read_object(paths.PATCHES / CONFIG)
    if patches.get("kind") == SHIPPED:
        write_nothing(patches, "the takes ship features: nothing to pool")
        return
    info = PatchInfo(**patches)
    if config.kind == "mean":
        write_mean(config, info)
    else:
        train(config, info)


def write_mean(config: PoolerConfig, info: PatchInfo) -> None:
    """Write the description of mean pooling, which has nothing to train."""
    width = info.width * (info.cells if config.cells == "concat" else 1)
    description = common_config("mean", info, width, 1, 1, "take") | {"cells": config.cells}
    write_nothing(description, f"kind mean, {width} wide: nothing to train")


def write_nothing(description: dict[str, Any], why: str) -> None:
    """Write the outs of a pooler that is not trained."""
    with atomic_folder(paths.POOLER) as folder:
        write_json(folder / CONFIG, description)
    with atomic_folder(paths.POOLER_RESULTS) as folder:
        write_json(folder / "metrics.json", {})
    say(f"pooler: {why}")


def train(config: PoolerConfig, info: PatchInfo) -> None:
    from pjepa.nn.fit import live_log
    from pjepa.pooler.takes import pooler_takes
    from pjepa.pooler.train import PoolerTask, train_pooler

    classes = read_classes(paths.CLASSES)
    takes = pooler_takes(
        read_takes(paths.TAKES_TABLE), read_segments(paths.SEGMENTS_TABLE), classes,
        paths.PATCHES, config.per_step,
    )  # fmt: skip
    say(
        f"pooler: {len(takes.fit)} labelled train takes, {len(takes.holdout)} held out to judge"
        + ("" if takes.holdout else ": none, so the last epoch is kept")
    )
    task = PoolerTask(config, info, len(classes.names))
    if task.shape.width % config.heads:
        raise InputError(
            f"pooler.heads {config.heads} does not divide the width {task.shape.width} of tokens"
        )
    with (
        work_folder("pooler", work_key(config)) as work,
        live_log(paths.POOLER_RESULTS) as log,
        atomic_folder(paths.POOLER) as folder,
    ):
        numbers = train_pooler(task, takes, work, folder, log)
    scores = ("in_fold_acc", "out_of_fold_acc", "holdout_acc")
    say("pooler: " + ", ".join(f"{k} {numbers[k]:.1f}" for k in scores if k in numbers))


def work_key(config: PoolerConfig) -> str:
    """Return the key a resumed training must share: settings, tables and patch files."""
    tables = (paths.TAKES_TABLE, paths.SEGMENTS_TABLE, paths.CLASSES)
    files = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in patch_files()]
    return fingerprint(config.resume_key(), [file_sha256(table) for table in tables], files)


def patch_files() -> list[Path]:
    return sorted(file for file in paths.PATCHES.iterdir() if file.is_file())


if __name__ == "__main__":
    stage_main(run)
