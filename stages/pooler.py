"""`pooler`: how patches become tokens. `mean` has nothing to train; `action` reads train labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa import paths
from pjepa.backbones.store import PatchInfo
from pjepa.config.pooler import PoolerConfig
from pjepa.config.section import read_section
from pjepa.errors import InputError
from pjepa.pooling.facts import CONFIG, common_config
from pjepa.pooling.mean import pooled_width
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.takes.manifest import SHIPPED, read_classes, read_segments, read_takes
from pjepa.work import (
    file_sha256,
    fingerprint,
    read_json,
    whole_folder,
    work_folder,
    write_json,
)


def run() -> None:
    """Writes `models/pooler` and, under `results/pooler`, the curves of its training."""
    config = read_section(PoolerConfig, "pooler")
    patches = read_json(paths.PATCHES / CONFIG)
    if patches.get("kind") == SHIPPED:
        write_nothing(patches, "the takes ship features: nothing to pool")
        return
    info = PatchInfo(**patches)
    if config.kind == "mean":
        write_mean(config, info)
    else:
        train(config, info)


def write_mean(config: PoolerConfig, info: PatchInfo) -> None:
    """Mean pooling is its description."""
    width = pooled_width(info.cells, info.width, config.cells)
    description = common_config("mean", info, width, 1, 1, "take") | {"cells": config.cells}
    write_nothing(description, f"kind mean, {width} wide: nothing to train")


def write_nothing(description: dict[str, Any], why: str) -> None:
    """The outs where nothing is trained."""
    with whole_folder(paths.POOLER) as folder:
        write_json(folder / CONFIG, description)
    with whole_folder(paths.POOLER_RESULTS) as folder:
        write_json(folder / "metrics.json", {})
    say(f"pooler: {why}")


def train(config: PoolerConfig, info: PatchInfo) -> None:
    from pjepa.training.log import live_log
    from pjepa.training.pooler.run import PoolerTask, train_pooler
    from pjepa.training.pooler.takes import pooler_takes

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
        whole_folder(paths.POOLER) as folder,
    ):
        numbers = train_pooler(task, takes, work, folder, log)
    told = ("in_fold_acc", "out_of_fold_acc", "holdout_acc")
    say("pooler: " + ", ".join(f"{k} {numbers[k]:.1f}" for k in told if k in numbers))


def work_key(config: PoolerConfig) -> str:
    """What a resumed training must have in common: settings, tables, and the patch files."""
    tables = (paths.TAKES_TABLE, paths.SEGMENTS_TABLE, paths.CLASSES)
    files = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in patch_files()]
    return fingerprint(config.model_dump(), [file_sha256(table) for table in tables], files)


def patch_files() -> list[Path]:
    return sorted(file for file in paths.PATCHES.iterdir() if file.is_file())


if __name__ == "__main__":
    stage_main(run)
