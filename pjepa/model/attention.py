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

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.model import flash, flex
from pjepa.model.calls import Call, at_rows, between, calls_of, spans, take_ends
from pjepa.ui.transfer import sent

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

# Coordinates of packed tokens: take, segment and place (packed, never padded).


@dataclass(frozen=True)
class Layout:
    """Coordinates of N packed tokens. Tokens of a take are contiguous and in time order."""

    take_lengths: tuple[int, ...]
    segment: Tensor  # [N] c(i), counted from 0 in each take
    offset: Tensor  # [N] r(i)
    index: Tensor  # [N] place in the whole take, also when only some tokens are kept
    tables: dict[Hashable, Any] = field(default_factory=dict, kw_only=True)  # of `rope_table`

    def at(self, rows: Tensor, lengths: tuple[int, ...]) -> Layout:
        """Return the tokens at `rows` at their original coordinates."""
        places = (self.segment, self.offset, self.index)
        tables = {key: table.at(rows) for key, table in self.tables.items()}
        return Layout(lengths, *(p.index_select(0, rows) for p in places), tables=tables)

    def to(self, device: torch.device | str) -> Layout:
        """Return the same layout on another device."""
        return Layout(
            self.take_lengths,
            sent(self.segment, device),
            sent(self.offset, device),
            sent(self.index, device),
        )

    def block(self, attention: str, block: int) -> Tensor:
        """Return the block ids [N] for an attention mode (table above)."""
        if attention == "clip_causal":
            return self.segment
        if attention == "block_causal":
            return self.index // block
        if attention == "token_causal":
            return self.index
        return torch.zeros_like(self.index)


def layout_of_segments(segment_lengths: list[list[int]]) -> Layout:
    """Return the layout of takes given by their segment lengths, one list per take."""
    segment: list[Tensor] = []
    offset: list[Tensor] = []
    index: list[Tensor] = []
    for lengths in segment_lengths:
        size = torch.tensor(lengths, dtype=torch.long)
        segment.append(torch.repeat_interleave(torch.arange(len(lengths)), size))
        offset.extend(torch.arange(length) for length in lengths)
        index.append(torch.arange(int(size.sum())))
    return Layout(
        tuple(sum(lengths) for lengths in segment_lengths),
        torch.cat(segment),
        torch.cat(offset),
        torch.cat(index),
    )


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


# 2D rotary positions over (c, r) (paper Sec.


@dataclass(frozen=True)
class RopeTable:
    """Tables cos and sin for every token and channel, [N, d_h]; heads share them."""

    cos: Tensor
    sin: Tensor
    turn: Tensor | None = None  # e^(i angle) [N, 1, 1, d_h / 2], if channels come in pairs

    @cached_property
    def back(self) -> RopeTable:
        """Return the transposed map, which gradients go through."""
        if self.turn is not None:
            return RopeTable(self.cos, -self.sin, self.turn.conj_physical())
        return RopeTable(self.cos, -_swapped(self.sin))

    def at(self, rows: Tensor) -> RopeTable:
        """Return the table of the tokens at `rows`."""
        parts = (self.cos, self.sin) if self.turn is None else (self.cos, self.sin, self.turn)
        return RopeTable(*(part.index_select(0, rows) for part in parts))


@dataclass(frozen=True)
class Rope:
    """How a model turns its queries and keys; `by_segment` and `by_offset` are d_S and d_T."""

    positions: str = "2d"
    convention: str = "paired"
    base: float = 10000.0
    by_segment: int | None = None
    by_offset: int | None = None

    def widths(self, head_dim: int) -> tuple[int, int]:
        """Return (d_S, d_T): even halves unless given; what is left over, d_0, is not rotated."""
        by_segment, by_offset = self.by_segment, self.by_offset
        if by_segment is None:
            half = 2 * ((head_dim // 2) // 2)
            by_segment = half if by_offset is None else 2 * ((head_dim - by_offset) // 2)
        if by_offset is None:
            by_offset = 2 * ((head_dim - by_segment) // 2)
        return by_segment, by_offset


def angles(position: Tensor, width: int, base: float, layout: str) -> Tensor:
    """Return the angle of every channel [N, width]: frequencies base^(-i / (width/2)).

    `paired`: channels 2i and 2i+1 share one, a true rotation. `tiled`: the ladder is repeated
    instead, which is not a rotation but what the authors' released weights were trained with.
    """
    half = width // 2
    steps = torch.arange(half, device=position.device, dtype=torch.float32) / half
    ladder = 1.0 / base**steps  # this order of rounding is the released weights'
    turned = position.float()[:, None] * ladder  # [N, width / 2]
    if layout == "tiled":
        return torch.cat([turned, turned], dim=1)
    return turned.repeat_interleave(2, dim=1)


def rope_table(layout: Layout, head_dim: int, rope: Rope) -> RopeTable:
    """Return the table for a batch, in float32 (bf16 is too coarse for long takes).

    The layout keeps it: teacher and predictor share one, the student's is a part of it.
    """
    if (head_dim, rope) not in layout.tables:
        with torch.inference_mode(False):  # training may use the same layout later
            layout.tables[head_dim, rope] = _new_table(layout, head_dim, rope)
    known: RopeTable = layout.tables[head_dim, rope]
    return known


def _new_table(layout: Layout, head_dim: int, rope: Rope) -> RopeTable:
    by_segment, by_offset = rope.widths(head_dim)
    first, second = layout.segment, layout.offset
    if rope.positions == "1d":  # the flat index for both parts, as in the release
        first = second = layout.index
    kind, base = rope.convention, rope.base
    turned = torch.cat(
        [angles(first, by_segment, base, kind), angles(second, by_offset, base, kind)], dim=1
    )
    if rope.positions == "none":
        turned = torch.zeros_like(turned)
    rest = head_dim - by_segment - by_offset
    turned = F.pad(turned, (0, rest))  # [N, d_h]
    cos, sin = turned.cos(), turned.sin()
    if kind == "tiled" or head_dim % 2:
        return RopeTable(cos, sin)
    return RopeTable(cos, sin, torch.complex(cos[:, ::2], sin[:, ::2])[:, None, None])


def rotate(x: Tensor, table: RopeTable) -> Tensor:
    """Return x [N, ..., d_h] turned: channel pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    pairs = _paired(x)  # [N, ..., d_h / 2, 2]
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    swapped = F.pad(swapped, (0, x.shape[-1] % 2))  # a last channel alone stays as it is
    over_heads = (len(x), *(1,) * (x.ndim - 2), x.shape[-1])
    cos, sin = table.cos.view(over_heads), table.sin.view(over_heads)
    return (x * cos + swapped * sin).to(x.dtype)


def rotate_(x: Tensor, table: RopeTable) -> None:
    """Rotate float32 [N, parts, heads, d_h] in place; a true rotation is one pass over x."""
    if table.turn is None:
        x.copy_(rotate(x, table))
    else:
        torch.view_as_complex(x.unflatten(-1, (x.shape[-1] // 2, 2))).mul_(table.turn)


def _paired(x: Tensor) -> Tensor:
    """Return the channels in pairs [..., d_h // 2, 2]."""
    width = x.shape[-1]
    return x[..., : width - width % 2].unflatten(-1, (-1, 2))


def _swapped(x: Tensor) -> Tensor:
    """Return x [N, d_h] with the channels of each pair exchanged."""
    return torch.cat([_paired(x).flip(-1).flatten(-2), x[:, x.shape[1] // 2 * 2 :]], dim=1)
