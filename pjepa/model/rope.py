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
    """cos and sin for every token and channel, [N, 1, d_h]; heads share them."""

    cos: Tensor
    sin: Tensor


def split_widths(head_dim: int) -> tuple[int, int]:
    """(d_S, d_T): even halves; what is left over, d_0, is not rotated."""
    by_segment = 2 * ((head_dim // 2) // 2)
    return by_segment, 2 * ((head_dim - by_segment) // 2)


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


def rope_table(layout: Layout, head_dim: int, positions: str, rope: str, base: float) -> RopeTable:
    """The table for a batch, always in float32 (bf16 positions are useless in long takes)."""
    by_segment, by_offset = split_widths(head_dim)
    first, second = layout.segment, layout.offset
    if positions == "1d":  # the flat index for both parts, as in the release
        first = second = layout.index
    turned = torch.cat(
        [angles(first, by_segment, base, rope), angles(second, by_offset, base, rope)], dim=1
    )
    if positions == "none":
        turned = torch.zeros_like(turned)
    rest = head_dim - by_segment - by_offset
    turned = torch.nn.functional.pad(turned, (0, rest))[:, None, :]  # [N, 1, d_h]
    return RopeTable(turned.cos(), turned.sin())


def rotate(x: Tensor, table: RopeTable) -> Tensor:
    """x [N, heads, d_h] turned: channel pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    pairs = x.unflatten(-1, (-1, 2))  # [N, heads, d_h / 2, 2]
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    return (x * table.cos + swapped * table.sin).to(x.dtype)
