"""`pooler`: how the patches of one step become one token; `kind: mean` has nothing to train."""

from pjepa import paths
from pjepa.backbones.store import PatchInfo
from pjepa.config.pooler import PoolerConfig
from pjepa.config.section import read_section
from pjepa.pooling.mean import pooled_width
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.takes.manifest import SHIPPED
from pjepa.work import read_json, whole_folder, write_json


def run() -> None:
    """Writes `models/pooler/config.json`."""
    config = read_section(PoolerConfig, "pooler")
    patches = read_json(paths.PATCHES / "config.json")
    if patches.get("kind") == SHIPPED:
        with whole_folder(paths.POOLER) as folder:
            write_json(folder / "config.json", patches)
        say("pooler: the takes ship features: nothing to pool")
        return
    info = PatchInfo(**patches)
    width_out = pooled_width(info.cells, info.width, config.cells)
    with whole_folder(paths.POOLER) as folder:
        description = {
            "kind": config.kind,
            "cells": config.cells,
            "grid": [info.rows, info.columns],
            "width_in": info.width,
            "width_out": width_out,
            "provenance": {"train_labels": False},
        }
        write_json(folder / "config.json", description)
    say(f"pooler: kind {config.kind}, {width_out} wide: nothing to train")


if __name__ == "__main__":
    stage_main(run)
