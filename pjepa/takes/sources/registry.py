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
            from pjepa.takes.demo.source import demo_source

            return demo_source(config)
        case "egoexo4d":
            from pjepa.takes.sources.egoexo4d import egoexo4d_source

            return egoexo4d_source(config.egoexo4d, config, root)
        case "egoprocel":
            from pjepa.takes.sources.egoprocel import egoprocel_source

            return egoprocel_source(config.egoprocel, config, root)
        case "archive":
            from pjepa.takes.sources.archive import archive_source

            return archive_source(config.archive, config, root)
        case "assembly101":
            from pjepa.takes.sources.assembly101 import assembly101_source

            return assembly101_source(config.assembly101, config, root)
        case "mstcn":
            from pjepa.takes.sources.mstcn import mstcn_source

            return mstcn_source(config.mstcn, config, root)
        case "folder":
            from pjepa.takes.sources.folder import folder_source

            return folder_source(config.folder, config, root)
        case _:
            raise InputError(f"data.source {config.source}: this version does not read it")
