"""From patch features to the token stream: pooled tokens with their times and segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pjepa.core.tables import VideoRow
from pjepa.core.time_grid import cut_steps, token_count, token_times
from pjepa.patches.store import read_patches, take_file_name
from pjepa.pooler.models import Pooler
from pjepa.pooler.models.facts import PoolerFacts
from pjepa.streams.schema import Boundaries, PoolerInfo, Provenance, StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import Take
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.placement import Placement, in_time_order
from pjepa.ui.errors import InputError


def stream_info(pooler: PoolerFacts, config: TokensConfig) -> StreamInfo:
    """Return file-level facts of a stream of pooled backbone features.

    A token sees to the end of its windows, the backbone's and the pooler's. Which tokens there are
    follows from annotations where gaps are dropped or overlaps repeated.
    """
    patches = pooler.patches
    chosen = config.gaps == "drop" or config.overlap == "duplicate"
    boundaries: Boundaries = "annotated" if chosen or pooler.knows_boundaries else "none"
    return StreamInfo(
        source=f"{patches.backbone} ({patches.weights_id})",
        fps=patches.tokens_fps * pooler.per_step,
        width=pooler.width,
        provenance=Provenance(
            train_labels=pooler.train_labels,
            label_folds=pooler.folds,
            selection_labels="holdout" if pooler.selection_labels == "holdout" else "none",
            boundaries_train=boundaries,
            boundaries_test=boundaries,
            lookahead_s=pooler.lookahead_steps / patches.tokens_fps,
            inside_segments=pooler.inside_segments,
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
        cuts = cut_steps(jumps.get(row.take_id, ()), stored.info.tokens_fps)
        limits = boundaries.get(row.take_id)
        features = pooler.tokens(stored.patches, limits, row.take_id, cuts)  # [T, D]
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
    """Return the label of every token: its segment's, or -1 (unknown) outside any."""
    return np.where(segment >= 0, np.append(labels, -1)[segment], -1).astype(np.int32)
