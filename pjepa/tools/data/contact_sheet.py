"""A contact sheet of a take, to check that labels and video agree before any computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pjepa.core.tables import VideoRow
from pjepa.patches.config import PatchesConfig
from pjepa.patches.identity import open_take
from pjepa.report.figures.figures import house_style, save_png
from pjepa.ui.errors import InputError
from pjepa.video.reader import Reader

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
    with open_take(row.path, config) as video, house_style():
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
