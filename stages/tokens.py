"""`tokens`: pooled patches become the Parquet token stream; labels go to a file of their own."""

from __future__ import annotations

import numpy as np

from pjepa import paths
from pjepa.backbones.store import PatchInfo, skipped_takes
from pjepa.config.section import read_section
from pjepa.config.tokens import TokensConfig
from pjepa.progress import say, track
from pjepa.stage import stage_main
from pjepa.streams.materialise import (
    materialised_takes,
    segment_labels,
    stream_info,
    token_labels,
)
from pjepa.streams.placement import placed_takes
from pjepa.streams.store import StreamWriter, write_labels
from pjepa.takes.manifest import VideoRow, read_boundaries, read_segments, read_videos
from pjepa.work import read_json


def run() -> None:
    config = read_section(TokensConfig, "tokens")
    pooler = read_json(paths.POOLER / "config.json")
    patches = PatchInfo(**read_json(paths.PATCHES / "config.json"))
    info = stream_info(patches, pooler["width_out"], pooler["provenance"]["train_labels"], config)
    rows = encoded_rows(read_videos(paths.VIDEOS_TABLE), skipped_takes(paths.PATCHES))
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    known = segment_labels(read_segments(paths.SEGMENTS_TABLE), boundaries)
    placements = placed_takes(rows, boundaries, config)
    takes = materialised_takes(rows, placements, paths.PATCHES, config.fps, pooler["cells"])
    labels = []
    with StreamWriter(paths.STREAM, info, config.dtype) as writer:
        for take in track(takes, "tokens", total=len(rows), unit="take"):
            writer.write(take)
            label = token_labels(take.segment, known.get(take.take_id, np.zeros(0, np.int32)))
            labels.append((take.take_id, take.times, label))
    write_labels(paths.LABELS, labels)


def encoded_rows(rows: list[VideoRow], skipped: dict[str, str]) -> list[VideoRow]:
    """The takes that have patch features; says which were left out upstream."""
    left_out = [row.take_id for row in rows if row.take_id in skipped]
    if left_out:
        say(f"tokens: {len(left_out)} takes without patches left out: {', '.join(left_out)}")
    return [row for row in rows if row.take_id not in skipped]


if __name__ == "__main__":
    stage_main(run)
