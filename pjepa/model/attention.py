"""Where tokens are, what they see (Eq. 3), and how far apart they are for the model (RoPE).

Token i of a take is in segment c(i), r(i)-th in it and i-th in all. All attention modes follow one
rule, `key block <= query block` inside a take:

| mode            | block of token i              | paper                                   |
|-----------------|-------------------------------|-----------------------------------------|
| `clip_causal`   | c(i)                          | Eq. 3: its own segment, and all before  |
| `block_causal`  | i // block                    | fixed windows instead of segments       |
| `token_causal`  | i                             | the predictor's                         |
| `bidirectional` | 0                             | the whole take                          |

Blocks are contiguous, so token i sees the keys [first, last) from the start of its take to the end
of its own block, and no T x T mask is needed:

| tensors                | way                                                       | in       |
|------------------------|-----------------------------------------------------------|----------|
| CPU, float32, bfloat16 | torch's flash kernel on parts, merged; in float32         | `cpu`    |
| CUDA                   | FlexAttention over tiles of 128 x 128, no mask kept       | `flex`   |
| anything else          | torch's public attention, some queries at a time          | here     |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.core.runs import token_offsets
from pjepa.model import cpu, flex
from pjepa.ui.transfer import sent

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from pjepa.model.config import EncoderSettings

# q [N, heads, d_h], k and v -> [M, heads, d_h] of the M queries whose result is wanted
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
CHUNK = 256  # queries handled together by the public way


@dataclass(frozen=True)
class Layout:
    """Coordinates of N packed tokens. Tokens of a take are contiguous and in time order."""

    take_lengths: tuple[int, ...]
    segment: Tensor  # [N] c(i), counted from 0 in each take
    offset: Tensor  # [N] r(i)
    index: Tensor  # [N] i, the place in the whole take, also when only some tokens are kept

    def at(self, rows: Tensor, lengths: tuple[int, ...]) -> Layout:
        """Return the tokens at `rows` at their original coordinates."""
        places = (self.segment, self.offset, self.index)
        return Layout(lengths, *(place.index_select(0, rows) for place in places))

    def to(self, device: torch.device | str) -> Layout:
        """Return the same layout on another device."""
        places = (self.segment, self.offset, self.index)
        return Layout(self.take_lengths, *(sent(place, device) for place in places))

    def block(self, attention: str, block: int) -> Tensor:
        """Return the block ids [N] for an attention mode (table above)."""
        if attention == "clip_causal":
            return self.segment
        if attention == "block_causal":
            return self.index // block
        if attention == "token_causal":
            return self.index
        return torch.zeros_like(self.index)


def layout_of_takes(segments: Sequence[np.ndarray]) -> Layout:
    """Return the layout of takes given by c(i) of their tokens [T], one array per take."""
    lengths = tuple(len(segment) for segment in segments)
    offsets = [token_offsets(segment) for segment in segments]
    indices = [np.arange(length) for length in lengths]
    places = (np.concatenate(place) for place in (segments, offsets, indices))
    return Layout(lengths, *(torch.from_numpy(place.astype(np.int64)) for place in places))


def layout_of_segments(segment_lengths: Sequence[Sequence[int]]) -> Layout:
    """Return the layout of takes given by their segment lengths, one list per take."""
    return layout_of_takes([np.repeat(np.arange(len(n)), n) for n in segment_lengths])


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Which keys [first, last) each packed token sees; made once per batch, shared by all layers.

    Both only grow along the batch. What a way of computing needs is made on demand.
    """

    first: Tensor  # [N]
    last: Tensor  # [N]
    rows: Tensor | None = None  # queries [M] whose result is wanted, ascending; None: all

    @cached_property
    def of_rows(self) -> tuple[Tensor, Tensor]:
        """Return `first` and `last` of the wanted queries, [M] and [M]."""
        return self._wanted(self.first), self._wanted(self.last)

    @cached_property
    def calls(self) -> list[cpu.Call]:
        """Return the calls of the CPU's kernel."""
        return cpu.calls_of(*self.of_rows)

    @cached_property
    def tiles(self) -> BlockMask:
        """Return the block mask for `flex`."""
        return flex.tiles_of(self.first, self.last)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return softmax attention of packed q, k, v [N, heads, d_h] -> [M, heads, d_h].

        A compiled model bypasses it. Marking this at the definition would import torch's compiler,
        which costs every process a second.
        """
        if torch.compiler.is_compiling():
            return torch.compiler.disable(self._attend)(q, k, v)
        return self._attend(q, k, v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = of_one_dtype(q, k, v)
        if not len(v):
            return v
        if cpu.is_usable(v):
            q, k = self._wanted(q).float(), k.float()
            return cpu.flash_attend(q, k, v.float(), self.calls).to(v.dtype)
        if flex.is_usable(v):
            return self._wanted(flex.flex_attend(q, k, v, self.tiles))
        return public_attend(self._wanted(q), k, v, *self.of_rows)

    def _wanted(self, x: Tensor) -> Tensor:
        return x if self.rows is None else x.index_select(0, self.rows)


def attention_plan(layout: Layout, block: Tensor) -> AttentionPlan:
    """Return the plan for block ids [N], which must not decrease inside a take.

    No wait for a GPU.
    """
    count = len(block)
    lengths = sent(torch.tensor(layout.take_lengths, dtype=torch.long), block.device)
    starts = lengths.cumsum(0) - lengths
    first = torch.repeat_interleave(starts, lengths, output_size=count)  # [N]
    same = (block[1:] == block[:-1]) & (first[1:] == first[:-1])  # block as the token before
    stop = torch.arange(1, count + 1, device=block.device)
    stop = stop.masked_fill(F.pad(same, (0, 1)), count)  # where a block ends, else N
    last = stop.flip(0).cummin(0).values.flip(0) if count else stop
    return AttentionPlan(first, last)


def public_attend(q: Tensor, k: Tensor, v: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Return attention [M, heads, d_h] of queries that see keys [first, last) [M], any device.

    By torch's public attention: some queries at a time, under a mask over what any of them sees.
    """
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, N, d_h]
    parts = [q[:, :, :0]]
    for start in range(0, len(first), CHUNK):
        begins, ends = first[start : start + CHUNK, None], last[start : start + CHUNK, None]
        keys = slice(int(begins[0]), int(ends[-1]))  # both only grow
        place = torch.arange(keys.start, keys.stop, device=first.device)
        mask = (begins <= place) & (place < ends)  # [queries, keys]
        query, key, value = q[:, :, start : start + CHUNK], k[:, :, keys], v[:, :, keys]
        parts.append(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))
    return torch.cat(parts, dim=2)[0].transpose(0, 1)


def of_one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k, v in autocast's type, or in that of v: rotation may have widened q and k."""
    device = v.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else v.dtype
    return q.to(dtype), k.to(dtype), v.to(dtype)


# Rotary positions: d_S channels of a head turn with c(i), d_T with r(i), the rest not at all.


@dataclass(frozen=True)
class RopeTable:
    """Cosine and sine of the angle of every token and channel, [N, d_h]; heads share them."""

    cos: Tensor
    sin: Tensor
    turn: Tensor | None = None  # e^(i angle) [N, d_h / 2], if channels turn in pairs


def rope_table(layout: Layout, heads: int, config: EncoderSettings) -> RopeTable:
    """Return the table for a batch, in float32 (bf16 is too coarse for long takes)."""
    head_dim = config.width // heads
    by_segment, by_offset = rope_widths(head_dim, config.rope_segment, config.rope_offset)
    first, second = layout.segment, layout.offset
    if config.positions == "1d":  # the flat index for both parts, as in the release
        first = second = layout.index
    turned = torch.cat(
        [
            angles(first, by_segment, config.rope_base, config.rope),
            angles(second, by_offset, config.rope_base, config.rope),
        ],
        dim=1,
    )
    if config.positions == "none":
        turned = torch.zeros_like(turned)
    turned = F.pad(turned, (0, head_dim - by_segment - by_offset))  # [N, d_h]
    cos, sin = turned.cos(), turned.sin()
    if config.rope == "tiled" or head_dim % 2:
        return RopeTable(cos, sin)
    return RopeTable(cos, sin, torch.complex(cos[:, ::2], sin[:, ::2]))


def rope_widths(head_dim: int, by_segment: int | None, by_offset: int | None) -> tuple[int, int]:
    """Return (d_S, d_T): even halves unless given; what is left over is not turned."""
    if by_segment is None:
        half = 2 * ((head_dim // 2) // 2)
        by_segment = half if by_offset is None else 2 * ((head_dim - by_offset) // 2)
    if by_offset is None:
        by_offset = 2 * ((head_dim - by_segment) // 2)
    return by_segment, by_offset


def angles(position: Tensor, width: int, base: float, convention: str) -> Tensor:
    """Return the angle of every channel [N, width]: frequencies base^(-i / (width/2)).

    `paired`: channels 2i and 2i+1 share one, a true rotation. `tiled`: the ladder is repeated
    instead, which is not a rotation but what the authors' released weights were trained with.
    """
    half = width // 2
    steps = torch.arange(half, device=position.device, dtype=torch.float32) / half
    ladder = 1.0 / base**steps  # this order of rounding is the released weights'
    turned = position.float()[:, None] * ladder  # [N, width / 2]
    if convention == "tiled":
        return torch.cat([turned, turned], dim=1)
    return turned.repeat_interleave(2, dim=1)


def rotate(x: Tensor, table: RopeTable) -> Tensor:
    """Return x [N, ..., d_h] turned: channel pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    width, heads = x.shape[-1], (1,) * (x.ndim - 2)

    def shared(values: Tensor) -> Tensor:
        return values.view(len(x), *heads, values.shape[1])

    pairs = x[..., : width - width % 2].unflatten(-1, (-1, 2))  # [N, ..., d_h / 2, 2]
    plain = x.device.type == "cpu" and x.dtype == torch.float32
    if table.turn is not None and plain and not torch.compiler.is_compiling():
        turned = torch.view_as_complex(pairs) * shared(table.turn)  # one pass instead of four
        return torch.view_as_real(turned).flatten(-2)
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    swapped = F.pad(swapped, (0, width % 2))  # a last channel alone stays as it is
    return (x * shared(table.cos) + swapped * shared(table.sin)).to(x.dtype)
