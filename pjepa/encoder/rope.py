"""2D rotary positions over (c, r) (paper Sec. 3.2, "2D RoPE").

Each head's channels are split d_h = d_S + d_T + d_0: the first part turns with the segment index
c(i), the second with the place inside the segment r(i), the rest stays. The table is built once
per batch and shared by all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.encoder.attention.layout import Layout


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
