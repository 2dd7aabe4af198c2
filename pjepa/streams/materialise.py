"""From patch features to the token stream: pooled tokens with their times and segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pjepa.backbones.store import PatchInfo, read_patches, take_file_name
from pjepa.errors import InputError
from pjepa.pooling.mean import Cells, pool
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import Take
from pjepa.takes.manifest import VideoRow
from pjepa.video.sampling import TUBELET, token_count, token_segments, token_times


def stream_info(patches: PatchInfo, width: int, train_labels: bool) -> StreamInfo:
    """File-level facts of a stream of pooled backbone features.

    A token sees to the end of its window: all but its own step lie ahead of the first one.
    """
    steps = patches.frames_per_window // TUBELET
    boundaries = "annotated" if patches.window_scope == "segment" else "none"
    return StreamInfo(
        source=f"{patches.backbone} ({patches.weights_id})",
        fps=patches.tokens_fps,
        width=width,
        provenance=Provenance(
            train_labels=train_labels,
            boundaries_train=boundaries,
            boundaries_test=boundaries,
            lookahead_s=steps / patches.tokens_fps,
        ),
    )


def materialised_takes(
    rows: list[VideoRow],
    boundaries: dict[str, np.ndarray],
    folder: Path,
    fps: float,
    cells: Cells,
) -> Iterator[Take]:
    """Every take's tokens, in the order of `videos.parquet`."""
    for row in rows:
        stored = read_patches(folder / take_file_name(row.take_id))
        features = pool(stored.patches, cells)  # [T, D]
        if len(features) != token_count(row.duration_s, fps):
            raise InputError(
                f"take {row.take_id}: {len(features)} steps of patches, expected "
                f"{token_count(row.duration_s, fps)} at {fps} tokens/s; run `dvc repro patches`"
            )
        times = token_times(len(features), fps)
        segment = token_segments(times, boundaries.get(row.take_id, np.zeros((0, 2))))
        yield Take(row.take_id, features, times, segment, token_offsets(segment))


def token_labels(segment: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Label of every token: its segment's, -1 outside any (unknown)."""
    return np.where(segment >= 0, np.append(labels, -1)[segment], -1).astype(np.int32)
