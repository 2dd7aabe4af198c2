"""`tokens`: pooled patches or shipped features become the Parquet token stream.

Labels go to a file of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pjepa.core.machine import device_kind
from pjepa.core.section import read_section
from pjepa.core.tables import (
    BoundaryTimes,
    FeatureInfo,
    VideoRow,
    read_boundaries,
    read_feature_info,
    read_segments,
    read_videos,
)
from pjepa.patches.store import CUTS, REPEATED, SKIPPED, noted
from pjepa.pooler.stored import load_pooler
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import (
    materialised_takes,
    picked_rows,
    segment_labels,
    shipped_info,
    shipped_takes,
    stream_info,
    token_labels,
)
from pjepa.tokens.placement import grid_times, placed_takes
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say, track


def run() -> None:
    config = read_section(TokensConfig, "tokens")
    rows = encoded_rows(read_videos(paths.VIDEOS_TABLE), noted(paths.PATCHES, SKIPPED))
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    labels = segment_labels(read_segments(paths.SEGMENTS_TABLE), boundaries)
    features = read_feature_info(paths.VIDEOS_TABLE)
    if features is None:
        info, takes = pooled_stream(rows, boundaries, config)
    else:
        info, takes = shipped_stream(rows, boundaries, features, config)
    with StreamWriter(paths.STREAM, info, config.dtype) as writer:
        tracked = track(takes, "tokens", total=len(rows), unit="take")
        write_labels(paths.LABELS, written_labels(writer, tracked, labels))


def written_labels(
    writer: StreamWriter, takes: Iterable[Take], labels: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Write every take and yield its (take, times, labels); one take is in memory at a time."""
    for take in takes:
        writer.write(take)
        of_segments = labels.get(take.take_id, np.zeros(0, np.int32))
        yield take.take_id, take.times, token_labels(take.segment, of_segments)


def pooled_stream(
    rows: list[VideoRow], boundaries: BoundaryTimes, config: TokensConfig
) -> tuple[StreamInfo, Iterator[Take]]:
    """Return the stream of takes that `patches` encoded, pooled by the model of `pooler`."""
    pooler = load_pooler(paths.POOLER, config.device, config.threads)
    info = stream_info(pooler.facts, config)
    info = info.with_repeated(sum(noted(paths.PATCHES, REPEATED).values()))
    info = info.with_device(device_kind(config.device))
    jumps = {take: tuple(jumps_s) for take, jumps_s in noted(paths.PATCHES, CUTS).items()}
    info = info.model_copy(update={"cuts": jumps})
    placements = placed_takes(grid_times(rows, config.fps), boundaries, config)
    takes = materialised_takes(
        rows, placements, boundaries, paths.PATCHES, config.fps, pooler, info.cuts
    )
    return info, takes


def shipped_stream(
    rows: list[VideoRow], boundaries: BoundaryTimes, features: FeatureInfo, config: TokensConfig
) -> tuple[StreamInfo, Iterator[Take]]:
    """Return the stream of takes whose frame features came with the data set."""
    info = shipped_info(features, rows, config)
    progress = track(rows, "tokens: times", unit="take")
    picked = {row.take_id: picked_rows(row, config.fps) for row in progress}
    times = {take_id: chosen.times for take_id, chosen in picked.items()}
    placements = placed_takes(times, boundaries, config)
    return info, shipped_takes(rows, picked, placements, info.width)


def encoded_rows(rows: list[VideoRow], skipped: dict[str, str]) -> list[VideoRow]:
    """Return the takes that have patch features; report those left out upstream."""
    left_out = [row.take_id for row in rows if row.take_id in skipped]
    if left_out:
        say(f"tokens: {len(left_out)} takes without patches left out: {', '.join(left_out)}")
    return [row for row in rows if row.take_id not in skipped]


if __name__ == "__main__":
    stage_main(run)
