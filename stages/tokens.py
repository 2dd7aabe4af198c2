"""`tokens`: pooled patches become the Parquet token stream; labels go to a file of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pjepa import paths
from pjepa.backbones.store import PatchInfo
from pjepa.config.section import read_section
from pjepa.config.tokens import TokensConfig
from pjepa.progress import track
from pjepa.stage import stage_main
from pjepa.streams.materialise import (
    materialised_takes,
    segment_labels,
    stream_info,
    token_labels,
)
from pjepa.streams.placement import placed_takes
from pjepa.streams.store import StreamWriter, Take, write_labels
from pjepa.takes.manifest import read_boundaries, read_segments, read_videos
from pjepa.work import read_json


def run() -> None:
    config = read_section(TokensConfig, "tokens")
    pooler = read_json(paths.POOLER / "config.json")
    patches = PatchInfo(**read_json(paths.PATCHES / "config.json"))
    info = stream_info(patches, pooler["width_out"], pooler["provenance"]["train_labels"], config)
    rows = read_videos(paths.VIDEOS_TABLE)
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    known = segment_labels(read_segments(paths.SEGMENTS_TABLE), boundaries)
    placements = placed_takes(rows, boundaries, config)
    takes = materialised_takes(rows, placements, paths.PATCHES, config.fps, pooler["cells"])
    with StreamWriter(paths.STREAM, info, config.dtype) as writer:
        tracked = track(takes, "tokens", total=len(rows), unit="take")
        write_labels(paths.LABELS, written_labels(writer, tracked, known))


def written_labels(
    writer: StreamWriter, takes: Iterable[Take], known: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(take, times, labels) of every take, which is written on the way: one is held at a time."""
    for take in takes:
        writer.write(take)
        label = token_labels(take.segment, known.get(take.take_id, np.zeros(0, np.int32)))
        yield take.take_id, take.times, label


if __name__ == "__main__":
    stage_main(run)
