"""The data sources by name: `data.source` chooses one, and only its module is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source, groups_file, regrouped
from pjepa.ui.console import InputError


def open_source(config: DataConfig, root: Path) -> Source:
    """Return the takes of the chosen source, regrouped if asked; `root` is the data root."""
    source = _source(config, root)
    if config.groups is None or config.source == "folder":  # which groups before it draws splits
        return source
    takes, notes = regrouped(source.takes, groups_file(config, root))
    return replace(source, takes=takes, notes=[*source.notes, *notes])


def _source(config: DataConfig, root: Path) -> Source:
    match config.source:
        case "demo":
            from pjepa.takes.demo.source import demo_source as read
        case "egoexo4d":
            from pjepa.takes.sources.egoexo4d import egoexo4d_source as read
        case "egoprocel":
            from pjepa.takes.sources.egoprocel import egoprocel_source as read
        case "archive":
            from pjepa.takes.sources.archive import archive_source as read
        case "assembly101":
            from pjepa.takes.sources.assembly101 import assembly101_source as read
        case "mstcn":
            from pjepa.takes.sources.mstcn import mstcn_source as read
        case "folder":
            from pjepa.takes.sources.folder import folder_source as read
        case _:
            raise InputError(f"data.source {config.source}: this version does not read it")
    return read(config, root)
