"""`tokens`: pooled patches become the Parquet token stream; labels go to a file of their own."""

from __future__ import annotations

import numpy as np

from pjepa import paths
from pjepa.backbones.store import skipped_takes
from pjepa.config.section import read_section
from pjepa.config.tokens import TokensConfig
from pjepa.pooling import load_pooler
from pjepa.progress import track
from pjepa.stage import stage_main
from pjepa.streams.materialise import (
    materialised_takes,
    segment_labels,
    stream_info,
    token_labels,
)
from pjepa.streams.placement import placed_takes
from pjepa.streams.store import StreamWriter, write_labels
from pjepa.takes.manifest import read_boundaries, read_segments, read_videos


def run() -> None:
    config = read_section(TokensConfig, "tokens")
    pooler = load_pooler(paths.POOLER, config.device, config.threads)
    info = stream_info(pooler.facts, config)
    skipped = skipped_takes(paths.PATCHES)
    rows = [row for row in read_videos(paths.VIDEOS_TABLE) if row.take_id not in skipped]
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    known = segment_labels(read_segments(paths.SEGMENTS_TABLE), boundaries)
    placements = placed_takes(rows, boundaries, config)
    takes = materialised_takes(rows, placements, boundaries, paths.PATCHES, config.fps, pooler)
    labels = []
    with StreamWriter(paths.STREAM, info, config.dtype) as writer:
        for take in track(takes, "tokens", total=len(rows), unit="take"):
            writer.write(take)
            label = token_labels(take.segment, known.get(take.take_id, np.zeros(0, np.int32)))
            labels.append((take.take_id, take.times, label))
    write_labels(paths.LABELS, labels)


if __name__ == "__main__":
    stage_main(run)
