"""Takes that end early: what a representation knows at 25, 50, 75 and 100 % of every segment.

A clip-causal token has seen its whole segment, so features of whole takes would give away how a
segment goes on. Here the take is cut and represented anew, for the encoder and the controls alike.
The encoder's stream gives just that: `peek` is `encode` of the take so far. Tokens are cut, not
videos: what a token's own window sees beyond the cut (`lookahead_s` of the stream) it sees in every
row.

| name            | feature at a cut                                                          |
|-----------------|---------------------------------------------------------------------------|
| `raw`           | the last token                                                            |
| `segment_mean`  | mean of the segment's tokens so far                                       |
| `history`       | that, the mean of the past segments, the last and the one before          |
| `pjepa`         | the encoder at the last token                                             |
| `pjepa_segment` | the encoder, mean of the segment so far                                   |
| `random`        | as `pjepa`, untrained                                                     |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pjepa.controls.config import ControlsConfig
from pjepa.controls.representations import history
from pjepa.core.runs import runs
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.streams.segments import attention_segments
from pjepa.streams.store import Take

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Cuts:
    """Where one take is cut: N = segments x len(SHARES) places, in order."""

    segment: np.ndarray  # [N] place of the segment in the take
    share: np.ndarray  # [N] of it that was seen
    start: np.ndarray  # [N] first token of the segment
    end: np.ndarray  # [N] first token that was not seen

    def __len__(self) -> int:
        return len(self.end)


AtCuts = Callable[[Take, Cuts], np.ndarray]  # features [N, D] at the cuts


def take_cuts(segment: np.ndarray) -> Cuts:
    """Return the cuts of a take with segments c(i) [T]; a cut segment has one token at least."""
    starts, lengths = runs(attention_segments(segment))
    count, shares = len(starts), np.array(SHARES)
    seen = np.ceil(shares[None] * lengths[:, None] - 1e-9).astype(np.int64)  # [S, shares]
    start = np.repeat(starts, len(shares))
    return Cuts(
        np.repeat(np.arange(count), len(shares)),
        np.tile(shares, count),
        start,
        start + seen.ravel(),
    )


def raw(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the last token before every cut [N, D]."""
    return take.features[cuts.end - 1]


def segment_mean(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the mean of the segment so far [N, D]."""
    sums = np.cumsum(take.features, axis=0, dtype=np.float64)
    sums = np.concatenate([np.zeros_like(sums[:1]), sums])
    count = (cuts.end - cuts.start)[:, None]
    return ((sums[cuts.end] - sums[cuts.start]) / count).astype(np.float32)


def past(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the control `history` of the cut take [N, 4 D].

    What it says of earlier segments is the same in the whole take.
    """
    whole = history(take, ControlsConfig(), 0.0)[cuts.start]
    return np.concatenate([segment_mean(take, cuts), whole[:, take.features.shape[1] :]], axis=1)


def encoded_cuts(encoder: ProcedureEncoder, take: Take, cuts: Cuts) -> tuple[np.ndarray, ...]:
    """Return the encoder's features at the cuts: last token [N, d], mean of the segment [N, d]."""
    stream = encoder.stream()
    annotated = stream.rule.kind == "annotated"
    final, last, mean, done = encoder.mean.new_zeros(0, encoder.config.width), [], [], 0
    for start, end, share in zip(cuts.start, cuts.end, cuts.share, strict=True):
        if end > done:  # two cuts of a short segment may be one
            told = stream.push(take.features[done:end], ends=False if annotated else None)
            final, done = torch.cat([final, told]), int(end)
        own = torch.cat([final, stream.peek()])[start:end]  # [n, d]
        last.append(own[-1])
        mean.append(own.mean(dim=0))
        if annotated and share == 1:
            final = torch.cat([final, stream.end_segment()])
    return tuple(torch.stack(rows).float().cpu().numpy() for rows in (last, mean))


CONTROLS: dict[str, AtCuts] = {"raw": raw, "segment_mean": segment_mean, "history": past}
