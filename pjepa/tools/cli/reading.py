"""The option `--reader`, the same for every command that reads video."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pjepa.core.choices import ReaderName
from pjepa.core.section import read_section

if TYPE_CHECKING:
    from pjepa.patches.config import PatchesConfig


READER_HELP = "Video decoder; auto is PyAV."
ReaderChoice = Annotated[ReaderName, typer.Option("--reader", help=READER_HELP)]
ProjectReader = Annotated[
    ReaderName | None, typer.Option("--reader", help=f"{READER_HELP} Default: patches.reader.")
]


def reading_config(reader: ReaderName | None) -> PatchesConfig:
    """Return how this project reads videos, with the reader asked for."""
    from pjepa.patches.config import PatchesConfig
    from pjepa.takes.config import DataConfig

    config = read_section(PatchesConfig, "patches")
    chosen = config.reader if reader is None else reader
    gap = read_section(DataConfig, "data").max_gap_s
    return config.model_copy(update={"reader": chosen, "max_gap_s": gap})
