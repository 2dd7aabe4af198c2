"""Streaming inference (paper Sec. 4, Table 3): the visible context grows, only what is new counts.

At every step a model sees the take up to some token and is asked for the tokens that are new. The
context grows by one segment at a time (the paper, which needs boundaries) or by fixed seconds. A
model whose predictions never depend on more than the prefix in which they were new gives the same
in one pass over the take; only the other steps are run again, on their prefix.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import Span, runs
from pjepa.probes.base.probe import Features, Probe
from pjepa.probes.base.sight import Index, Sight


def segment_steps(segments: Index) -> Index:
    """Return the ends of the prefixes that grow by one segment at a time."""
    starts, lengths = runs(segments)
    return starts + lengths


def time_steps(times: NDArray[np.float64], step_s: float) -> Index:
    """Return the ends of the prefixes that grow by `step_s` seconds; empty steps are left out."""
    if not len(times):
        return np.zeros(0, np.int64)
    step = np.floor((times - times[0]) / step_s + 1e-9).astype(np.int64)
    return segment_steps(step)


def newest_ends(ends: Index) -> Index:
    """Return for every token the end of the prefix in which it was new."""
    return np.repeat(ends, np.diff(ends, prepend=0))


def repeated_steps(sight: Sight, segments: Index, ends: Index) -> list[Span]:
    """Return start and end of the steps that one pass over the whole take would get wrong."""
    late = sight.ends(segments) > newest_ends(ends)  # [T] saw more than its prefix
    starts = [0, *ends.tolist()]
    return [(start, end) for start, end in pairwise(starts) if late[start:end].any()]


def streamed(
    probe: Probe,
    features: Features,
    segments: Index,
    ends: Index,
    tick: Callable[[], None] = lambda: None,
) -> Features:
    """Return probabilities [T, C], each row predicted from the prefix in which it was new.

    `tick` is called after every prefix that was run again.
    """
    found = probe.predict(features, segments).copy()
    spans = repeated_steps(probe.sight, segments, ends)
    for (start, end), part in zip(
        spans, probe.predict_newest(features, segments, spans), strict=True
    ):
        found[start:end] = part
        tick()
    return found
