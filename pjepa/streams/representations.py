"""Writing representations: the same tokens, represented differently, in the stream's schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pjepa.streams.schema import StreamInfo
from pjepa.streams.segments import runs
from pjepa.streams.store import StreamReader, StreamWriter, Take
from pjepa.ui.progress import track

Represent = Callable[[Take], np.ndarray]


def longest_segment_s(stream: StreamReader) -> float:
    """Return the longest segment of any take in seconds.

    This is how far ahead clip-causal attention may see.
    """
    longest = max(int(runs(stream.read_layout(take).segment)[1].max()) for take in stream.takes)
    return longest / stream.info.fps


def write_representation(
    path: Path, stream: StreamReader, info: StreamInfo, represent: Represent, dtype: str, what: str
) -> None:
    """Write `represent` of every take, one row group each."""
    with StreamWriter(path, info, dtype) as writer:
        for take in track(stream.read_many(), what, total=len(stream.takes), unit="take"):
            writer.write(take.with_features(represent(take)))
