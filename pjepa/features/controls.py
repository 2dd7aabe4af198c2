"""Controls: representations without learning, to show where a gain comes from.

| name           | given boundaries | what it shows                                             |
|----------------|------------------|-----------------------------------------------------------|
| `raw`          | as the stream    | the input                                                 |
| `smooth`       | no               | averaging over the recent past is enough                  |
| `segment_mean` | yes              | knowing the segment is enough                             |
| `history`      | yes              | context without learning: this segment, all past, last two |
| `time`         | yes              | position alone is enough; relative time sees the take's end |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pjepa.core.runs import attention_segments, runs, segment_means
from pjepa.features.config import ControlsConfig
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take
from pjepa.ui.console import track

Control = Callable[[Take, ControlsConfig, float], np.ndarray]


def raw(take: Take, config: ControlsConfig, fps: float) -> np.ndarray:
    """Return the stream as it is [T, D]."""
    return take.features


def smooth(take: Take, config: ControlsConfig, fps: float) -> np.ndarray:
    """Return the causal moving average over the last `smooth_s` seconds [T, D]."""
    span = max(1, round(config.smooth_s * fps))
    sums = np.cumsum(take.features, axis=0, dtype=np.float64)
    sums[span:] = sums[span:] - sums[:-span]
    return (sums / np.minimum(np.arange(len(sums)) + 1, span)[:, None]).astype(np.float32)


def segment_mean_features(features: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Return every token as the mean of its segment [T, D]."""
    return segment_means(features, segment).astype(np.float32)[attention_segments(segment)]


def segment_mean(take: Take, config: ControlsConfig, fps: float) -> np.ndarray:
    """Return the raw stream averaged over each segment [T, D]."""
    return segment_mean_features(take.features, take.segment)


def history(take: Take, config: ControlsConfig, fps: float) -> np.ndarray:
    """Return the means of this segment, all past ones, the last and the one before [T, 4 D].

    Zeros where there is no past.
    """
    means = segment_means(take.features, take.segment).astype(np.float32)  # [S, D]
    none = np.zeros_like(means[:1])
    before = np.concatenate([none, means[:-1]])
    past = np.cumsum(before, axis=0) / np.maximum(np.arange(len(means)), 1)[:, None]
    two_before = np.concatenate([none, before[:-1]])
    rows = np.concatenate([means, past, before, two_before], axis=1).astype(np.float32)
    return rows[attention_segments(take.segment)]


def time(take: Take, config: ControlsConfig, fps: float) -> np.ndarray:
    """Return position only [T, P].

    One-hot relative time and segment, sinusoids of r and of elapsed time.
    """
    count = len(take.times)
    bins = np.minimum(np.arange(count) * config.time_bins // count, config.time_bins - 1)
    segment = np.minimum(attention_segments(take.segment), config.time_segments - 1)
    parts = [
        np.eye(config.time_bins)[bins],
        np.eye(config.time_segments)[segment],
        _waves(take.offset, config.time_waves),
        _waves(take.times, config.time_waves),
    ]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _waves(position: np.ndarray, count: int) -> np.ndarray:
    """Return sin and cos at `count` octaves [T, 2 count]."""
    turned = position[:, None] * (np.pi / 2.0 ** np.arange(1, count + 1))
    return np.concatenate([np.sin(turned), np.cos(turned)], axis=1)


CONTROLS: dict[str, Control] = {
    "raw": raw,
    "smooth": smooth,
    "segment_mean": segment_mean,
    "history": history,
    "time": time,
}
_NEED_SEGMENTS = ("segment_mean", "history", "time")


def control_info(name: str, stream: StreamInfo, width: int, longest_s: float) -> StreamInfo:
    """Return file-level facts of a control of this stream."""
    seen = stream.provenance
    if name in _NEED_SEGMENTS:
        seen = seen.with_segments(longest_s)
    if name == "time":  # it reads no feature
        no_labels = {"train_labels": False, "label_folds": 0, "selection_labels": "none"}
        seen = seen.model_copy(update={"whole_take": True, **no_labels})
    return representation_info(name, stream, width, seen)


# Writing representations: the same tokens, represented differently, in the stream's schema.

Represent = Callable[[Take], np.ndarray]


def representation_info(
    name: str, stream: StreamInfo, width: int, provenance: Provenance
) -> StreamInfo:
    """Return file-level facts of a representation made from a stream."""
    source = f"{name} of {stream.source}"
    return stream.model_copy(update={"source": source, "width": width, "provenance": provenance})


def longest_segment_s(stream: StreamReader) -> float:
    """Return the longest segment of any take in seconds.

    This is how far ahead clip-causal attention may see.
    """
    longest = max(int(runs(stream.read_layout(take).segment)[1].max()) for take in stream.takes)
    return longest / stream.info.fps


def write_representations(
    stream: StreamReader,
    targets: Mapping[Path, StreamInfo],
    represent: Callable[[Take], Sequence[np.ndarray]],
    dtype: str,
    what: str,
) -> None:
    """Write what `represent` makes of every take, one array per target; a take is read once."""
    with ExitStack() as stack:
        writers = [stack.enter_context(StreamWriter(p, info, dtype)) for p, info in targets.items()]
        for take in track(stream.read_many(), what, total=len(stream.takes), unit="take"):
            for writer, rows in zip(writers, represent(take), strict=True):
                writer.write(take.with_features(rows))
