"""Stage `takes`: from a data source to the tables of data/takes/."""

from __future__ import annotations

from pjepa import paths
from pjepa.config.data import DataConfig
from pjepa.config.section import read_section
from pjepa.roots import data_root
from pjepa.stage import stage_main
from pjepa.takes.demo.source import film_demo
from pjepa.takes.registry import open_source
from pjepa.takes.scan import check_scan
from pjepa.takes.source import write_source
from pjepa.work import whole_folder


def run() -> None:
    config = read_section(DataConfig, "data")
    check_scan(config, data_root())
    source = open_source(config, data_root())
    if config.source == "demo":
        film_demo(config)
    else:
        write_no_demo(config.source)
    write_source(source, config.holdout, config.seed)


def write_no_demo(source: str) -> None:
    """data/demo is an out of this stage whatever the source: here it says why it is empty."""
    with whole_folder(paths.DEMO) as folder:
        note = folder / paths.DEMO_VIDEOS.name / "README.txt"  # DVC keeps no empty folder
        note.parent.mkdir()
        note.write_text(f"data.source is {source}: the demo films nothing.\n")


if __name__ == "__main__":
    stage_main(run)
