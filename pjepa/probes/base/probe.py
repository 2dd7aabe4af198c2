"""The interface of every fitted probe, linear or trained."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import Span
from pjepa.probes.base.sight import Sight
from pjepa.streams.segments import attention_segments

Features = NDArray[np.float32]
SegmentIds = NDArray[np.int64]


def probe_segments(segment: NDArray[np.int32]) -> SegmentIds:
    """Return segments [T] as probes see them: 0, 1, 2 ... along the take, gaps included.

    A take without any annotation has -1 throughout: it is not one giant segment.
    """
    if not (segment >= 0).any():
        return np.full(len(segment), -1, np.int64)
    return attention_segments(segment)


class Probe(Protocol):
    """A fitted map from `features [T, D]` and `segments [T]` (see `probe_segments`) to
    probabilities [T, C].
    """

    @property
    def details(self) -> dict[str, Any]:
        """Return how the probe was fitted, as JSON values."""

    @property
    def sight(self) -> Sight:
        """Return how far ahead a prediction depends on tokens."""

    def predict(self, features: Features, segments: SegmentIds | None = None) -> Features:
        """Return the probabilities of every token, given the whole take."""

    def predict_newest(
        self, features: Features, segments: SegmentIds, spans: Sequence[Span]
    ) -> Iterator[Features]:
        """Yield the probabilities of tokens start..end, given the prefix up to end."""

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""
