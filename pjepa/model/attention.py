"""Attention inside packed takes under `key block <= query block` (Eq. 3), without T x T masks.

Queries are taken in chunks of whole blocks; a chunk attends to the prefix of its take up to its own
end, so memory is linear in T, and a mask is needed only inside a chunk that spans several blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.model.layout import Layout

CHUNK = 256  # queries handled together; one longer block is a chunk of its own


@dataclass(frozen=True)
class Chunk:
    """Queries [start, stop) attend to keys [first, stop), where `mask` allows it."""

    start: int
    stop: int
    first: int
    mask: Tensor | None  # bool [stop - start, stop - first]; None: everything


def attention_plan(layout: Layout, block: Tensor, chunk: int = CHUNK) -> list[Chunk]:
    """How a packed batch is attended, worked out once and shared by all layers.

    `block` [N] must not decrease inside a take.
    """
    plan: list[Chunk] = []
    first = 0
    for length in layout.take_lengths:
        ids = block[first : first + length]
        for start, stop in _chunks(ids, chunk):
            mask = None
            if int(ids[start]) != int(ids[stop - 1]):
                mask = ids[None, :stop] <= ids[start:stop, None]  # [queries, keys]
            plan.append(Chunk(first + start, first + stop, first, mask))
        first += length
    return plan


def _chunks(ids: Tensor, chunk: int) -> list[tuple[int, int]]:
    """Spans of about `chunk` tokens that end where a block ends."""
    if len(ids) == 0:
        return []
    ends = torch.cat([(ids[1:] != ids[:-1]).nonzero()[:, 0] + 1, ids.new_tensor([len(ids)])])
    spans, start = [], 0
    previous = 0
    for end in ends.tolist():
        if end - start > chunk and previous > start:
            spans.append((start, previous))
            start = previous
        previous = end
    spans.append((start, len(ids)))
    return spans


def attend(q: Tensor, k: Tensor, v: Tensor, plan: list[Chunk]) -> Tensor:
    """Softmax attention of packed q, k, v [N, heads, d_h] along the plan -> [N, heads, d_h]."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, N, d_h]
    parts = [
        F.scaled_dot_product_attention(
            q[:, :, c.start : c.stop],
            k[:, :, c.first : c.stop],
            v[:, :, c.first : c.stop],
            attn_mask=c.mask,
        )
        for c in plan
    ]
    if not parts:
        return q[0].transpose(0, 1)
    return torch.cat(parts, dim=2)[0].transpose(0, 1)  # [N, heads, d_h]
