"""The neighbour term: one token alone has to tell its own segment and those before and after.

    L_neighbour = 1/|A| sum_{(i, k) in A} smooth_l1(H_k z_i, m_{c(i) + k})
    A = {(i, k) : i in C, k in K, the take has a segment c(i) + k}
    L = L_P-JEPA (Eq. 2) + w L_neighbour

| here      | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| K, w      | `pjepa.neighbours`, `pjepa.neighbour_weight`                                     |
| z_i       | the student's output at a context token i in C                                   |
| m_s       | mean of the normalised input tokens of segment s: fixed by the data, no collapse |
| H_k       | one linear layer per k: no attention, so z_i itself must carry the answer        |

Not in the paper. The predictor of Eq. 2 sees the whole stream and can look the past up by itself,
so Eq. 2 alone does not ask the encoder to carry it. Segments are those the encoder's attention
and positions use, so the term knows no boundary that the encoder does not. smooth_l1 is the mean
over channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.encoder.attention.layout import Layout
from pjepa.forecast.heads import NeighbourHeads
from pjepa.ui.transfer import sent


@dataclass(frozen=True, eq=False)
class Pairs:
    """A of a packed batch as indices, made once and best on the CPU: no GPU has to wait."""

    own: Tensor  # [N] every token's segment, counted over the whole batch
    sizes: Tensor  # [S] tokens of every segment
    tokens: tuple[Tensor, ...]  # for every k of K: context tokens i [n], counted in C,
    segments: tuple[Tensor, ...]  # and the segments c(i) + k [n]

    def __len__(self) -> int:
        return sum(map(len, self.tokens))

    def to(self, device: torch.device | str) -> Pairs:
        """Return the same pairs on another device."""
        own, sizes = sent(self.own, device), sent(self.sizes, device)
        parts = (tuple(sent(x, device) for x in part) for part in (self.tokens, self.segments))
        return Pairs(own, sizes, *parts)


def pairs_of(places: Sequence[int], visible: Tensor, layout: Layout) -> Pairs:
    """Return the pairs of the context tokens at `visible` [C]."""
    own, span = packed_segments(layout)
    at, reach = own[visible], span[visible]
    tokens = tuple(_exists(at, reach, k).nonzero()[:, 0] for k in places)
    segments = tuple(at[there] + k for k, there in zip(places, tokens, strict=True))
    return Pairs(own, torch.bincount(own), tokens, segments)


def neighbour_error(heads: NeighbourHeads, context: Tensor, pairs: Pairs, x: Tensor) -> Tensor:
    """Return the error summed over A of context features [C, d].

    x [N, d_in] are the normalised tokens of the whole batch.
    """
    means = segment_means(x, pairs)
    total = x.new_zeros(())
    for k, there, segment in zip(heads.places, pairs.tokens, pairs.segments, strict=True):
        told = heads(context[there], k)  # [n, d_in]
        error = F.smooth_l1_loss(told, means[segment], reduction="none")
        total = total + error.mean(dim=1).sum()
    return total


def packed_segments(layout: Layout) -> tuple[Tensor, Tensor]:
    """Return segments counted over the batch: every token's [N], and its take's [N, 2].

    A take's segments are those from its first up to, not including, its end.
    """
    lengths = torch.tensor(layout.take_lengths, dtype=torch.long, device=layout.segment.device)
    sizes = layout.segment[lengths.cumsum(0) - 1] + 1  # [takes] segments of each
    ends = sizes.cumsum(0)
    span = torch.stack([ends - sizes, ends], dim=1).repeat_interleave(lengths, dim=0)  # [N, 2]
    return span[:, 0] + layout.segment, span


def segment_means(x: Tensor, pairs: Pairs) -> Tensor:
    """Return m_s [S, D]: the mean of the tokens x [N, D] of every packed segment."""
    sums = x.new_zeros(len(pairs.sizes), x.shape[1]).index_add_(0, pairs.own, x)
    return sums / pairs.sizes[:, None]


def _exists(own: Tensor, span: Tensor, k: int) -> Tensor:
    """Return whether the take has a segment k places from a token's own, bool [N]."""
    return (own + k >= span[:, 0]) & (own + k < span[:, 1])
