"""`tokens`: pooled patches or shipped features become the Parquet token stream.

Labels go to a file of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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
    picked_takes,
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


@dataclass(frozen=True)
class Stream:
    """The stream to write: its facts and its takes, made one by one."""

    info: StreamInfo
    takes: Iterable[Take]


def run() -> None:
    config = read_section(TokensConfig, "tokens")
    rows = encoded_rows(read_videos(paths.VIDEOS_TABLE), noted(paths.PATCHES, SKIPPED))
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    known = segment_labels(read_segments(paths.SEGMENTS_TABLE), boundaries)
    features = read_feature_info(paths.VIDEOS_TABLE)
    if features is None:
        stream = pooled_stream(rows, boundaries, config)
    else:
        stream = shipped_stream(rows, boundaries, features, config)
    with StreamWriter(paths.STREAM, stream.info, config.dtype) as writer:
        tracked = track(stream.takes, "tokens", total=len(rows), unit="take")
        write_labels(paths.LABELS, written_labels(writer, tracked, known))


def written_labels(
    writer: StreamWriter, takes: Iterable[Take], known: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Write every take and yield its (take, times, labels); one take is in memory at a time."""
    for take in takes:
        writer.write(take)
        label = token_labels(take.segment, known.get(take.take_id, np.zeros(0, np.int32)))
        yield take.take_id, take.times, label


def pooled_stream(rows: list[VideoRow], boundaries: BoundaryTimes, config: TokensConfig) -> Stream:
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
    return Stream(info, takes)


def shipped_stream(
    rows: list[VideoRow], boundaries: BoundaryTimes, features: FeatureInfo, config: TokensConfig
) -> Stream:
    """Return the stream of takes whose frame features came with the data set."""
    info = shipped_info(features, rows, config)
    picked = picked_takes(rows, config.fps)
    times = {take_id: part.times for take_id, part in picked.items()}
    placements = placed_takes(times, boundaries, config)
    return Stream(info, shipped_takes(rows, picked, placements, info.width))


def encoded_rows(rows: list[VideoRow], skipped: dict[str, str]) -> list[VideoRow]:
    """Return the takes that have patch features; report those left out upstream."""
    left_out = [row.take_id for row in rows if row.take_id in skipped]
    if left_out:
        say(f"tokens: {len(left_out)} takes without patches left out: {', '.join(left_out)}")
    return [row for row in rows if row.take_id not in skipped]


if __name__ == "__main__":
    stage_main(run)
