"""The sparse attentions of LTContext: a take is cut into rows, and a row looks at its own keys.

`Windows`: rows of W frames, each sees the 2W frames centred on it. `Band`: a frame sees W frames to
either side. `Strides`: G rows of every G-th frame, each sees itself. All grids start at frame 0.
Which keys a query may see is a bias that depends on the take alone, made once and shared by all
layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

BITS = 16  # random bits per dropped element: p is exact to 2^-17
HIDDEN = -1e30  # finite: a padded query that sees nothing must not become NaN


@dataclass(frozen=True)
class Windows:
    """Query i may see key j iff floor(i/W) W - W/2 <= j < floor(i/W) W + 3W/2."""

    size: int
    blocks: ClassVar[int] = 2  # of W keys, that a row sees

    def queries(self, x: Tensor) -> Tensor:
        """Return x [B, T, ...] in rows [B, n, W, ...]."""
        return _rows(x, self.size)

    def keys(self, x: Tensor) -> Tensor:
        """Return what every row sees [B, n, blocks W, ...]; zeros outside the take."""
        blocks = _rows(x, self.size, (self.blocks - 1) * self.size // 2)
        count = blocks.shape[1] - self.blocks + 1
        return torch.cat([blocks[:, first : first + count] for first in range(self.blocks)], 2)

    def frames(self, rows: Tensor, length: int) -> Tensor:
        """Return rows of queries as frames [B, T, ...]."""
        return rows.flatten(1, 2)[:, :length]


@dataclass(frozen=True)
class Band(Windows):
    """Query i may see key j iff |i - j| <= W: three blocks of keys, cut along both diagonals."""

    blocks: ClassVar[int] = 3

    def near(self, device: torch.device) -> Tensor:
        """Return which keys of its row a query may see, bool [Q, K]; key 0 is W frames before."""
        query = torch.arange(self.size, device=device)[:, None]
        key = torch.arange(self.blocks * self.size, device=device) - self.size
        return (query - key).abs() <= self.size


@dataclass(frozen=True)
class Strides:
    """Query i may see key j iff i mod G == j mod G."""

    step: int

    def queries(self, x: Tensor) -> Tensor:
        """Return x [B, T, ...] in rows [B, G, m, ...]."""
        return _rows(x, self.step).transpose(1, 2)

    def keys(self, x: Tensor) -> Tensor:
        """Return the same: every row sees itself."""
        return self.queries(x)

    def frames(self, rows: Tensor, length: int) -> Tensor:
        """Return rows of queries as frames [B, T, ...]."""
        return rows.transpose(1, 2).flatten(1, 2)[:, :length]


Pattern = Windows | Strides


def _rows(x: Tensor, size: int, reach: int = 0) -> Tensor:
    """Return x [B, T, ...] in rows [B, n, size, ...]; `reach` zeros around, and to the last end."""
    edges = (reach, reach + -x.shape[1] % size)
    return F.pad(x, (0, 0) * (x.ndim - 2) + edges).unflatten(1, (-1, size))


@dataclass(frozen=True)
class Visibility:
    """A pattern and, for one batch, the bias [B or 1, n, 1, 1 or Q, K] of its scores."""

    pattern: Pattern
    bias: Tensor


def visibility(
    pattern: Pattern, valid: Tensor, segment: Tensor | None, dtype: torch.dtype
) -> Visibility:
    """Return bias 0 where the key is valid, near and c(key) <= c(query), else `HIDDEN`.

    `valid` bool [B, T]; `segment` c(i) [B, T], or None when the future may be seen.
    """
    seen = pattern.keys(valid)[:, :, None]  # [B, n, 1, K]
    if segment is not None:
        seen = seen & (pattern.keys(segment)[:, :, None] <= pattern.queries(segment)[..., None])
    if isinstance(pattern, Band):
        seen = seen & pattern.near(valid.device)
    bias = torch.zeros(seen.shape, dtype=dtype, device=valid.device).masked_fill_(~seen, HIDDEN)
    return Visibility(pattern, bias[:, :, None])


def attended(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, dropout: float) -> Tensor:
    """Return dropout(softmax(q k^T / sqrt(d_h) + bias)) v for q, k, v [B, T, heads, d_h]."""
    pattern, length = visible.pattern, q.shape[1]
    rows = (pattern.queries(q), pattern.keys(k), pattern.keys(v))
    q, k, v = (x.transpose(2, 3) for x in rows)  # [B, n, heads, Q or K, d_h]
    shape = q.shape[:3]
    bias = visible.bias.expand(*shape, -1, -1).flatten(0, 2)
    q, k, v = (x.flatten(0, 2) for x in (q, k, v))
    weights = torch.baddbmm(bias, q, k.mT, alpha=q.shape[-1] ** -0.5).softmax(-1)
    read = torch.bmm(dropped(weights, dropout), v).unflatten(0, shape)
    return pattern.frames(read.transpose(2, 3), length)


def dropped(x: Tensor, p: float) -> Tensor:
    """Return dropout(x, p), on a CPU in a third of torch's time: a fifth of a training step."""
    if not p or x.device.type != "cpu":
        return F.dropout(x, p) if p else x
    words = torch.empty(-(-x.numel() * BITS // 64), dtype=torch.int64, device=x.device)
    bits = words.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= round(p * 2**BITS) - 2 ** (BITS - 1)).to(x.dtype).mul_(1 / (1 - p))
