"""One take with its segments: from data/takes where that is up to date, else from the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.figure import Figure

from pjepa.core.section import read_section
from pjepa.core.tables import VideoRow, read_classes, read_segments, read_videos
from pjepa.core.text import did_you_mean
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import open_take
from pjepa.report.figures import house_style, save_png
from pjepa.storage.roots import data_root
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import source_here, stale_list
from pjepa.tools import paths
from pjepa.ui.console import InputError
from pjepa.video.reader import Reader

LabelledSpans = list[tuple[float, float, str]]


@dataclass(frozen=True)
class ShownTake:
    """A take's video and its segments as (start, end, label)."""

    row: VideoRow
    segments: LabelledSpans
    note: str = ""  # where they were read, if that has to be known


def shown_take(take_id: str) -> ShownTake:
    """Return the take of that id; an id that is not there is an error that names a near one."""
    config, root = read_section(DataConfig, "data"), data_root()
    spans: Sequence[Any]
    written, note = paths.VIDEOS_TABLE.exists(), ""
    if written and config.path is not None and _older(config, root):
        written = not source_here(config, root)
        how = "drawn as it was, the data is not on this machine"
        how = how if written else "read from the source"
        note = f"{paths.TAKES} is older than params or data: {how}"
    if written:
        rows, names = read_videos(paths.VIDEOS_TABLE), read_classes(paths.CLASSES).names
        spans = list(read_segments(paths.SEGMENTS_TABLE).itertuples(index=False))
    else:
        source = open_source(config, root)
        rows, names, spans = source.videos, source.classes.names, source.segments
    by_id = {row.take_id: row for row in rows}
    if take_id not in by_id:
        hint = did_you_mean(take_id, by_id, cutoff=0.3)
        raise InputError(f"no take {take_id!r} among {len(by_id)}{hint}")
    named = [
        (float(s.start_s), float(s.end_s), names[s.label] if s.label >= 0 else "unknown")
        for s in spans
        if s.take_id == take_id
    ]
    return ShownTake(by_id[take_id], named, note)


def _older(config: DataConfig, root: Path) -> bool:
    """Return whether data/takes may show another source or other labels than a new run would."""
    written_at = paths.SEGMENTS_TABLE.stat().st_mtime
    newer = [
        path
        for path in (paths.PARAMS, paths.source_list(config.source))
        if path.exists() and path.stat().st_mtime > written_at
    ]
    return bool(newer) or stale_list(config, root, paths.source_list(config.source)) is not None


def picture_name(take_id: str) -> str:
    """Return a file name in the working folder that no take id can leave."""
    return f"{quote(take_id, safe=' ').lstrip('.') or 'take'}.png"


# A contact sheet of a take, to check that labels and video agree before any computation.

COLUMNS, MOST = 6, 600  # tiles in a row, and in all: 25,000 pixels from top to bottom
TILE_IN, TEXT_IN, TITLE_IN = 2.0, 0.45, 0.4  # inches
UNLABELLED = 12  # tiles of a take without segments
SIDE = 240  # pixels of a tile's longer side
LONGEST = 28  # characters of a label in one line


@dataclass(frozen=True)
class Tile:
    """One picture of the sheet: the frame at `time_s`, and what is written above it."""

    time_s: float
    text: str


def segment_tiles(
    segments: Sequence[tuple[float, float, str]], duration_s: float
) -> tuple[list[Tile], int]:
    """Return the middle of every segment in time order, and how many are left out beyond `MOST`.

    A take without segments gives tiles at even distances.
    """
    if not segments:
        times = (np.arange(UNLABELLED) + 0.5) * duration_s / UNLABELLED
        return [Tile(float(time), f"{time:.1f} s") for time in times], 0
    tiles = [
        Tile((start + end) / 2, f"{start:.1f} - {end:.1f} s\n{_short(label)}")
        for start, end, label in sorted(segments)
    ]
    step = -(-len(tiles) // MOST)
    return tiles[::step], len(tiles) - len(tiles[::step])


def _short(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}..."


def draw_contact_sheet(
    row: VideoRow, tiles: Sequence[Tile], path: Path, config: PatchesConfig
) -> None:
    """Write the sheet as PNG, of frames as `patches` reads them.

    A take that ships features has no picture to show.
    """
    if row.video is None:
        raise InputError(f"take {row.take_id}: ships features, no video to draw")
    columns = min(COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    with open_take(row.path, config, row.max_gap_s) as video, house_style():
        info = video.info
        tall = TILE_IN * info.height / max(info.width, info.height) + TEXT_IN
        height = rows * tall + TITLE_IN
        figure = Figure(figsize=(TILE_IN * columns + 0.1, height))
        # Fixed places: a layout engine takes minutes for hundreds of tiles.
        grid = figure.subplots(
            rows, columns, squeeze=False,
            gridspec_kw={
                "left": 0.01, "right": 0.99, "bottom": 0.02 / height,
                "top": 1 - (TITLE_IN + TEXT_IN) / height, "wspace": 0.04,
                "hspace": TEXT_IN / (tall - TEXT_IN),
            },
        )  # fmt: skip
        title = f"{row.take_id}   {info.duration_s:.1f} s, {info.fps:.2f} frames per second"
        figure.suptitle(title, fontsize=10, y=1 - 0.1 / height, va="top")
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, tile in zip(grid.flat, tiles, strict=False):
            axes.imshow(_picture(video, tile.time_s))
            late = tile.time_s >= info.duration_s
            axes.set_title(tile.text + (" (past the end)" if late else ""), fontsize=8)
        save_png(figure, path, "pjepa")  # by which it may be replaced


def _picture(video: Reader, time_s: float) -> np.ndarray:
    """Return the frame shown at a time, thinned to about `SIDE` pixels."""
    frame = video.frames(np.array([time_s]))[0]
    step = max(1, max(frame.shape) // SIDE)
    return frame[::step, ::step]
