"""`select`: which snapshot becomes the encoder. The last one needs no label."""

from __future__ import annotations

import shutil

from pjepa import paths
from pjepa.config.section import read_section
from pjepa.config.select import SelectConfig
from pjepa.errors import InputError
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.work import whole_folder, write_json


def run() -> None:
    config = read_section(SelectConfig, "select")
    snapshots = sorted(paths.SNAPSHOTS.glob("[0-9]*"))
    if not snapshots:
        raise InputError(f"{paths.SNAPSHOTS}: no snapshot; run `dvc repro pretrain`")
    chosen = snapshots[-1]
    with whole_folder(paths.ENCODER) as folder:
        for name in ("model.safetensors", "config.json"):
            shutil.copyfile(chosen / name, folder / name)
        write_json(
            folder / "selection.json",
            {"by": config.by, "epoch": int(chosen.name), "selection_labels": "none"},
        )
    say(f"select: the {config.by} snapshot, epoch {int(chosen.name)}, without labels")


if __name__ == "__main__":
    stage_main(run)
