"""2D rotary positions over (c, r) (paper Sec. 3.2, "2D RoPE").

Each head's channels are split d_h = d_S + d_T + d_0: the first part turns with the segment index
c(i), the second with the place inside the segment r(i), the rest stays. The table is built once
per batch and shared by all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pjepa.model.layout import Layout


@dataclass(frozen=True)
class RopeTable:
    """cos and sin for every token and channel, [N, d_h]; heads share them."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class Rope:
    """How a model turns its queries and keys; `by_segment` and `by_offset` are d_S and d_T."""

    positions: str = "2d"
    convention: str = "paired"
    base: float = 10000.0
    by_segment: int | None = None
    by_offset: int | None = None

    def widths(self, head_dim: int) -> tuple[int, int]:
        """(d_S, d_T): even halves unless given; what is left over, d_0, is not rotated."""
        by_segment, by_offset = self.by_segment, self.by_offset
        if by_segment is None:
            half = 2 * ((head_dim // 2) // 2)
            by_segment = half if by_offset is None else 2 * ((head_dim - by_offset) // 2)
        if by_offset is None:
            by_offset = 2 * ((head_dim - by_segment) // 2)
        return by_segment, by_offset


def angles(position: Tensor, width: int, base: float, layout: str) -> Tensor:
    """Angle of every channel [N, width]: frequencies base^(-i / (width/2)).

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
    """The table for a batch, always in float32 (bf16 positions are useless in long takes)."""
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
    turned = torch.nn.functional.pad(turned, (0, rest))  # [N, d_h]
    return RopeTable(turned.cos(), turned.sin())


def rotate(x: Tensor, table: RopeTable) -> Tensor:
    """x [N, ..., d_h] turned: channel pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    pairs = x.unflatten(-1, (-1, 2))  # [N, ..., d_h / 2, 2]
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    over_heads = (len(x), *(1,) * (x.ndim - 2), x.shape[-1])
    cos, sin = table.cos.view(over_heads), table.sin.view(over_heads)
    return (x * cos + swapped * sin).to(x.dtype)
