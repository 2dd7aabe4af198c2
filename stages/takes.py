"""Stage `takes`: from a data source to the tables of data/takes/."""

from __future__ import annotations

from pjepa.core.section import read_section
from pjepa.storage.roots import data_root
from pjepa.storage.writing import atomic_folder
from pjepa.takes.config import DataConfig
from pjepa.takes.demo.source import film_demo
from pjepa.takes.source import write_source
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import check_scan
from pjepa.tools import paths
from pjepa.tools.stage import stage_main


def run() -> None:
    config = read_section(DataConfig, "data")
    check_scan(config, data_root(), paths.source_list(config.source))
    source = open_source(config, data_root())
    if config.source == "demo":
        film_demo(config)
    else:
        write_no_demo(config.source)
    write_source(source, paths.TAKES, config.holdout, config.seed)


def write_no_demo(source: str) -> None:
    """Write a note in data/demo, an out of this stage for every source, on why it is empty."""
    with atomic_folder(paths.DEMO) as folder:
        note = folder / paths.DEMO_VIDEOS.name / "README.txt"  # DVC keeps no empty folder
        note.parent.mkdir()
        note.write_text(f"data.source is {source}: the demo films nothing.\n")


if __name__ == "__main__":
    stage_main(run)
