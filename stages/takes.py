"""Stage `takes`: from a data source to the tables of data/takes/."""

from __future__ import annotations

from pjepa.config.data import DataConfig
from pjepa.config.section import read_section
from pjepa.stage import stage_main
from pjepa.takes.demo.source import demo_source
from pjepa.takes.source import write_source


def run() -> None:
    config = read_section(DataConfig, "data")
    write_source(demo_source(config), config.holdout, config.seed)


if __name__ == "__main__":
    stage_main(run)
