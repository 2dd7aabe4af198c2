"""From patch features to the token stream: pooled tokens with their times and segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pjepa.backbones.store import PatchInfo, read_patches, take_file_name
from pjepa.config.tokens import TokensConfig
from pjepa.errors import InputError
from pjepa.pooling.mean import Cells, pool
from pjepa.streams.placement import Placement, in_time_order
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import Take
from pjepa.takes.manifest import VideoRow
from pjepa.video.sampling import token_count, token_times


def stream_info(
    patches: PatchInfo, width: int, train_labels: bool, config: TokensConfig
) -> StreamInfo:
    """File-level facts of a stream of pooled backbone features.

    How far a token sees ahead follows from the windows. Which tokens there are follows from
    annotations where gaps are dropped or overlaps repeated.
    """
    chosen = config.gaps == "drop" or config.overlap == "duplicate"
    boundaries = "annotated" if chosen or patches.window_scope == "segment" else "none"
    return StreamInfo(
        source=f"{patches.backbone} ({patches.weights_id})",
        fps=patches.tokens_fps,
        width=width,
        provenance=Provenance(
            train_labels=train_labels,
            boundaries_train=boundaries,
            boundaries_test=boundaries,
            lookahead_s=patches.sampling.lookahead_s,
            inside_segments=patches.window_scope == "segment",
        ),
    )


def materialised_takes(
    rows: list[VideoRow],
    placements: Mapping[str, Placement],
    folder: Path,
    fps: float,
    cells: Cells,
) -> Iterator[Take]:
    """Every take's tokens, in the order of `videos.parquet`; times are those of the video."""
    for row in rows:
        stored = read_patches(folder / take_file_name(row.take_id))
        features = pool(stored.patches, cells)  # [steps, D]
        if len(features) != token_count(row.duration_s, fps):
            raise InputError(
                f"take {row.take_id}: {len(features)} steps of patches, expected "
                f"{token_count(row.duration_s, fps)} at {fps} tokens/s; run `dvc repro patches`"
            )
        placed = placements[row.take_id]
        times = token_times(len(features), fps)[placed.step]
        offset = token_offsets(placed.segment)
        yield Take(row.take_id, features[placed.step], times, placed.segment, offset)


def segment_labels(
    segments: pd.DataFrame, boundaries: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Labels [S] of every annotated take in the order of its placement; -1 stays unknown."""
    ordered = segments.sort_values(["start_s", "end_s", "segment"], kind="stable")
    parts = {str(take_id): part for take_id, part in ordered.groupby("take_id", sort=False)}
    for take_id in {**boundaries, **parts}:
        limits = in_time_order(boundaries.get(take_id, np.zeros((0, 2))))
        same = take_id in parts and np.array_equal(limits, parts[take_id][["start_s", "end_s"]])
        if not same:
            raise InputError(
                f"take {take_id}: boundaries.parquet and segments.parquet hold different segments; "
                "run `dvc repro takes`"
            )
    return {take_id: part["label"].to_numpy(np.int32) for take_id, part in parts.items()}


def token_labels(segment: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Label of every token: its segment's, -1 outside any (unknown)."""
    return np.where(segment >= 0, np.append(labels, -1)[segment], -1).astype(np.int32)
