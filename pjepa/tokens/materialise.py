"""From patch features to the token stream: pooled tokens with their times and segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pjepa.core.runs import token_offsets
from pjepa.core.tables import FeatureInfo, VideoRow
from pjepa.core.time import token_count, token_times
from pjepa.patches.store import read_patches, take_file_name
from pjepa.pooler.stored import Pooler, PoolerFacts
from pjepa.streams.provenance import PoolerInfo, Provenance, StreamInfo
from pjepa.streams.stream import Take
from pjepa.takes.shipped import read_shipped
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.placement import Placement, in_time_order
from pjepa.ui.console import InputError


def boundaries_used(config: TokensConfig, by_pooler: bool = False) -> dict[str, Any]:
    """Return whose boundaries the tokens follow from, as fields of their provenance.

    Which tokens there are follows from annotations where gaps are dropped or overlaps repeated;
    `by_pooler`: what made the features knew them.
    """
    chosen = config.gaps == "drop" or config.overlap == "duplicate"
    boundaries = "annotated" if chosen or by_pooler else "none"
    return {"boundaries_train": boundaries, "boundaries_test": boundaries}


def stream_info(pooler: PoolerFacts, config: TokensConfig) -> StreamInfo:
    """Return file-level facts of a stream of pooled backbone features.

    A token sees to the end of its windows, the backbone's and the pooler's.
    """
    patches = pooler.patches
    return StreamInfo(
        source=f"{patches.backbone} ({patches.weights_id})",
        fps=patches.tokens_fps * pooler.per_step,
        width=pooler.width,
        provenance=Provenance(
            train_labels=pooler.train_labels,
            label_folds=pooler.folds,
            selection_labels="holdout" if pooler.selection_labels == "holdout" else "none",
            lookahead_s=pooler.lookahead_steps / patches.tokens_fps,
            inside_segments=pooler.inside_segments,
            **boundaries_used(config, pooler.knows_boundaries),
        ),
        pooler=PoolerInfo(kind=pooler.kind, sha256=pooler.sha256, supervised=pooler.train_labels),
    )


def materialised_takes(
    rows: list[VideoRow],
    placements: Mapping[str, Placement],
    boundaries: Mapping[str, np.ndarray],
    folder: Path,
    fps: float,
    pooler: Pooler,
    jumps: Mapping[str, Sequence[float]],
) -> Iterator[Take]:
    """Yield every take's tokens, in the order of `videos.parquet`; times are those of the video.

    `jumps` are the seconds at which time stamps of a take jump.
    """
    for row in rows:
        stored = read_patches(folder / take_file_name(row.take_id))
        jumps_s = jumps.get(row.take_id, ())
        limits = boundaries.get(row.take_id)
        features = pooler.tokens(stored.patches, limits, row.take_id, jumps_s)  # [T, D]
        expected = token_count(row.duration_s, fps)
        if not expected <= len(features) < expected + pooler.facts.per_step:
            raise InputError(
                f"take {row.take_id}: {len(features)} tokens from its patches, expected "
                f"{expected} at {fps} tokens/s; run `dvc repro patches`"
            )
        placed = placements[row.take_id]
        times = token_times(len(features), fps)[placed.step]
        offset = token_offsets(placed.segment)
        yield Take(row.take_id, features[placed.step], times, placed.segment, offset)


def segment_labels(
    segments: pd.DataFrame, boundaries: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return labels [S] of every annotated take, in the order of its placement; -1 is unknown."""
    ordered = segments.sort_values(["start_s", "end_s", "segment"], kind="stable")
    by_take = {str(take_id): rows for take_id, rows in ordered.groupby("take_id", sort=False)}
    for take_id in {**boundaries, **by_take}:
        limits = in_time_order(boundaries.get(take_id, np.zeros((0, 2))))
        same = take_id in by_take and np.array_equal(limits, by_take[take_id][["start_s", "end_s"]])
        if not same:
            raise InputError(
                f"take {take_id}: boundaries.parquet and segments.parquet hold different segments; "
                "run `dvc repro takes`"
            )
    return {take_id: rows["label"].to_numpy(np.int32) for take_id, rows in by_take.items()}


def token_labels(segment: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the label of every token: its segment's, or -1 (unknown) outside any."""
    return np.where(segment >= 0, np.append(labels, -1)[segment], -1).astype(np.int32)


# The tokens of a data set that ships frame features: rows are picked, times stay.

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
    """Return the rows of one take at `fps` tokens per second, each at most once.

    Times are read, features are not.
    """
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


def shipped_info(features: FeatureInfo, rows: list[VideoRow], config: TokensConfig) -> StreamInfo:
    """Return file-level facts of a stream of features that came with the data set."""
    return StreamInfo(
        source=features.name,
        fps=config.fps,
        width=read_shipped(rows[0]).features.shape[1],
        provenance=Provenance(
            train_labels=features.train_labels,
            lookahead_s=features.lookahead_s,
            **boundaries_used(config),
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
