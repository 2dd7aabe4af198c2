"""Attention inside packed takes under `key block <= query block` (Eq. 3), without T x T masks.

Blocks are contiguous, so token i sees exactly the keys from the start of its take to the end of
its own block: causal attention, and a little more, the rest of the block. Softmax attention over
two disjoint sets A, B of keys is the mean of both, weighted by their log-sum-exps l:

    l = log(exp(l_A) + exp(l_B)),   out = exp(l_A - l) out_A + exp(l_B - l) out_B

So the cheap causal kernel can do most of the work, and small calls are merged into its result.

| tensors        | way                                                         | in               |
|----------------|-------------------------------------------------------------|------------------|
| CPU, float32   | torch's flash kernel on parts, merged; memory linear in T   | `calls`, `flash` |
| CPU, bfloat16  | the same, in float32: the matrices around it gain, not this |                  |
| CUDA           | FlexAttention over tiles of 128 x 128, no mask kept         | `flex`           |
| anything else  | public API: chunks of whole blocks against all before them  | here             |

The last keeps masks of `CHUNK` x prefix, so it is for short takes and for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.encoder.attention import flash, flex
from pjepa.encoder.attention.calls import Call, at_rows, between, calls_of, spans, take_ends
from pjepa.encoder.attention.layout import Layout
from pjepa.ui.transfer import sent

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

CHUNK = 256  # queries handled together by the public way


class Attends(Protocol):
    """What a layer needs of a batch: attention of its q, k, v [N, heads, d_h], in one step."""

    @property
    def rows(self) -> Tensor | None:
        """Return the tokens [M] whose result is wanted, in order; None for all."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the result [M, heads, d_h]."""


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Takes and block ids [N] of a packed batch; what a way of computing needs is made on demand.

    Worked out once, shared by all layers.
    """

    take_lengths: tuple[int, ...]
    block: Tensor
    rows: Tensor | None = None  # queries [M] whose result is wanted

    def at(self, rows: Tensor | None) -> AttentionPlan:
        """Return the plan for some queries only, in order."""
        return AttentionPlan(self.take_lengths, self.block, rows)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return `attend` along this plan."""
        return attend(q, k, v, self)

    @cached_property
    def ends(self) -> list[int]:
        """Return where blocks end; a take's end is one too."""
        block = self.block.cpu().numpy()
        changes = np.flatnonzero(block[1:] != block[:-1]) + 1
        return sorted({*changes.tolist(), *take_ends(self.take_lengths)})

    @cached_property
    def seen(self) -> tuple[Tensor, Tensor]:
        """Return first and last (exclusive) of the keys that each token sees, [N] and [N]."""
        return seen_keys(self.take_lengths, self.block)

    @cached_property
    def calls(self) -> list[Call]:
        """Return the calls for `flash`."""
        if self.rows is None:
            return calls_of(self.take_lengths, self.ends)
        return at_rows(calls_of(self.take_lengths, self.ends, some=True), self.rows)

    @cached_property
    def tiles(self) -> BlockMask:
        """Return the block mask for `flex`."""
        return flex.tiles_of(*self.seen)

    @cached_property
    def chunks(self) -> list[Chunk]:
        """Return the chunks for the public API."""
        return chunks_of(self)


def seen_keys(take_lengths: tuple[int, ...], block: Tensor) -> tuple[Tensor, Tensor]:
    """Return first [N] and last [N]: token i sees keys [first, last); no wait for a GPU."""
    count = len(block)
    lengths = sent(torch.tensor(take_lengths, dtype=torch.long), block.device)
    starts = lengths.cumsum(0) - lengths
    first = torch.repeat_interleave(starts, lengths, output_size=count)  # [N]
    inner = (block[1:] == block[:-1]) & (first[1:] == first[:-1])  # the next token's block is ours
    stop = torch.arange(1, count + 1, device=block.device)
    stop = stop.masked_fill(F.pad(inner, (0, 1)), count)  # where a block ends, else N
    last = stop.flip(0).cummin(0).values.flip(0) if count else stop
    return first, last


def attention_plan(layout: Layout, block: Tensor) -> AttentionPlan:
    """Return the plan for block ids [N], which must not decrease inside a take."""
    return AttentionPlan(layout.take_lengths, block)


def attend(q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
    """Return softmax attention of packed q, k, v [N, heads, d_h] along the plan -> [M, heads, d_h].

    A compiled model bypasses it. Marking this at the definition would import torch's compiler,
    which costs every process a second.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(_attend)(q, k, v, plan)
    return _attend(q, k, v, plan)


def _attend(q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
    q, k, v = of_one_dtype(q, k, v)
    if not len(v):
        return v
    if flash.is_usable(v) or flash.is_usable_widened(v):
        q = q if plan.rows is None else q.index_select(0, plan.rows)
        return flash.flash_attend(q.float(), k.float(), v.float(), plan.calls).to(v.dtype)
    if flex.is_usable(v):
        out = flex.flex_attend(q, k, v, plan.tiles)
    else:
        out = prefix_attend(q, k, v, plan.chunks)
    return out if plan.rows is None else out.index_select(0, plan.rows)


def of_one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k, v in autocast's type, or in that of v: rotation may have widened q and k."""
    device = v.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else v.dtype
    return q.to(dtype), k.to(dtype), v.to(dtype)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Queries [start, stop) attend to keys [first, stop) where `mask` allows it."""

    start: int
    stop: int
    first: int
    causal: bool
    mask: Tensor | None  # bool [stop - start, stop - first]; None: everything


def chunks_of(plan: AttentionPlan, limit: int = CHUNK) -> list[Chunk]:
    """Return spans of whole blocks, about `limit` queries or one block.

    A token-causal take is one.
    """
    chunks: list[Chunk] = []
    for first, last in pairwise([0, *take_ends(plan.take_lengths)]):
        ends = between(plan.ends, first, last)
        if 1 < len(ends) == last - first:
            chunks.append(Chunk(first, last, first, True, None))
            continue
        for start, stop in spans(ends, first, limit):
            mask = None
            if len(between(ends, start, stop)) > 1:
                block = plan.block[first:stop]
                mask = block <= block[start - first :, None]  # [queries, keys]
            chunks.append(Chunk(start, stop, first, False, mask))
    return chunks


def prefix_attend(q: Tensor, k: Tensor, v: Tensor, chunks: list[Chunk]) -> Tensor:
    """Return `attend` by torch's public attention, any device and type."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, N, d_h]
    parts = [
        F.scaled_dot_product_attention(
            q[:, :, c.start : c.stop],
            k[:, :, c.first : c.stop],
            v[:, :, c.first : c.stop],
            attn_mask=c.mask,
            is_causal=c.causal,
        )
        for c in chunks
    ]
    return torch.cat(parts, dim=2)[0].transpose(0, 1)  # [N, heads, d_h]
