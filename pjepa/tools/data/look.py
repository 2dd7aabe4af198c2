"""One take with its segments: from data/takes where that is up to date, else from the source."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote

from pjepa.core.roots import data_root
from pjepa.core.section import read_section
from pjepa.core.tables import VideoRow, read_classes, read_segments, read_videos
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import source_here, stale_list
from pjepa.tools import paths
from pjepa.ui.errors import InputError

LabelledSpans = list[tuple[float, float, str]]


@dataclass(frozen=True)
class ShownTake:
    """A take's video and its segments as (start, end, label)."""

    row: VideoRow
    segments: LabelledSpans
    note: str = ""  # where they were read, if that has to be known


def found_take(take_id: str) -> ShownTake:
    """Return the take of that id; an id that is not there is an error that names a near one."""
    config, root = read_section(DataConfig, "data"), data_root()
    written, note = paths.VIDEOS_TABLE.exists(), ""
    if written and config.path is not None and _older(config, root):
        written = not source_here(config, root)
        note = f"{paths.TAKES} is older than params or data: " + (
            "drawn as it was, the data is not on this machine"
            if written
            else "read from the source"
        )
    if written:
        rows, names = read_videos(paths.VIDEOS_TABLE), read_classes(paths.CLASSES).names
        table = read_segments(paths.SEGMENTS_TABLE)
        mine = table.loc[table["take_id"] == take_id, ["start_s", "end_s", "label"]]
        spans = [(float(start), float(end), int(label)) for start, end, label in mine.to_numpy()]
    else:
        source = open_source(config, root)
        rows, names = source.videos, source.classes.names
        spans = [(s.start_s, s.end_s, s.label) for s in source.segments if s.take_id == take_id]
    by_id = {row.take_id: row for row in rows}
    if take_id not in by_id:
        near = get_close_matches(take_id, list(by_id), n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"no take {take_id!r} among {len(by_id)}{hint}")
    named = [(a, b, names[label] if label >= 0 else "unknown") for a, b, label in spans]
    return ShownTake(by_id[take_id], named, note)


def _older(config: DataConfig, root: Path) -> bool:
    """Return whether data/takes may show another source or other labels than a new run would."""
    made = paths.SEGMENTS_TABLE.stat().st_mtime
    newer = [
        path
        for path in (paths.PARAMS, paths.source_list(config.source))
        if path.exists() and path.stat().st_mtime > made
    ]
    return bool(newer) or stale_list(config, root, paths.source_list(config.source)) is not None


def picture_name(take_id: str) -> str:
    """Return a file name in the working folder that no take id can leave."""
    return f"{quote(take_id, safe=' ').lstrip('.') or 'take'}.png"
