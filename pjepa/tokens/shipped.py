"""The token stream of a data set that ships frame features: rows picked, times kept.

Token k is the last row at or before k / tokens.fps seconds after the first: rows 0, 2, 5, 7, ... of
10 per second at 4 tokens per second (the release's floor(2.5 k)), every 8th of 30 at 3.75, and of
30 at 4 the nearest to 7.5 k. Each keeps its own time stamp, so steps of 0.2 and 0.3 s alternate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pjepa.core.tables import FeatureInfo, VideoRow
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import Take
from pjepa.takes.features.shipped import read_shipped
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.placement import Placement
from pjepa.ui.errors import InputError
from pjepa.ui.progress import track

SAME_RATE = 0.01  # features within 1 % of the token rate are taken row by row
SLACK = 1e-6  # rows; 30 / 4 * k is not exact in floats


@dataclass(frozen=True)
class PickedRows:
    """Rows of the shipped features that become steps, and their times."""

    index: np.ndarray  # [steps]
    times: np.ndarray  # [steps] seconds


def is_too_slow(row: VideoRow, fps: float) -> bool:
    """Return whether `fps` tokens per second are more than the shipped features."""
    return row.fps < fps * (1 - SAME_RATE)


def picked_rows(row: VideoRow, fps: float) -> PickedRows:
    """Return the rows of one take at `fps` tokens per second, each at most once."""
    times = read_shipped(row).times_s
    if is_too_slow(row, fps):
        raise InputError(
            f"take {row.take_id}: features at {row.fps:g} per second, tokens.fps {fps:g} asks for "
            f"more; set tokens.fps={row.fps:g} or less"
        )
    index = np.arange(len(times))
    if row.fps > fps * (1 + SAME_RATE):
        ratio = row.fps / fps
        index = np.floor(np.arange(np.ceil(len(times) / ratio)) * ratio + SLACK).astype(np.int64)
        index = index[index < len(times)]
    return PickedRows(index, times[index])


def picked_takes(rows: list[VideoRow], fps: float) -> dict[str, PickedRows]:
    """Return the picked rows of every take; times are read, features are not."""
    return {row.take_id: picked_rows(row, fps) for row in track(rows, "tokens: times", unit="take")}


def shipped_info(features: FeatureInfo, rows: list[VideoRow], config: TokensConfig) -> StreamInfo:
    """Return file-level facts; with dropped gaps, annotations decide which tokens exist."""
    chosen = config.gaps == "drop" or config.overlap == "duplicate"
    boundaries = "annotated" if chosen else "none"
    return StreamInfo(
        source=features.name,
        fps=config.fps,
        width=read_shipped(rows[0]).features.shape[1],
        provenance=Provenance(
            train_labels=features.train_labels,
            boundaries_train=boundaries,
            boundaries_test=boundaries,
            lookahead_s=features.lookahead_s,
        ),
    )


def shipped_takes(
    rows: list[VideoRow],
    picked: Mapping[str, PickedRows],
    placements: Mapping[str, Placement],
    width: int,
) -> Iterator[Take]:
    """Yield every take's tokens in the order of `videos.parquet`, one take in memory at a time."""
    for row in rows:
        rows_of, placed = picked[row.take_id], placements[row.take_id]
        features = read_shipped(row).features
        if features.shape[1] != width:
            raise InputError(
                f"take {row.take_id}: features {features.shape[1]} wide, the first take's {width}; "
                "check the orientation of the array"
            )
        steps, back = np.unique(placed.step, return_inverse=True)
        tokens = np.asarray(features[rows_of.index[steps]], np.float32)[back]  # [T, D]
        times = rows_of.times[placed.step]
        yield Take(row.take_id, tokens, times, placed.segment, token_offsets(placed.segment))
