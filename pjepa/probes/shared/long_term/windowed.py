"""The sparse attentions of LTContext, on views of the take instead of copied windows.

`Windows`: queries lie in blocks of W frames, a block sees the 2W frames centred on it. `Band`: a
query sees W frames to either side. `Strides`: frames at the same position modulo G see each other.
All grids start at frame 0. Which keys a query may see is a bias that depends on the take alone,
made once and shared by all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

HIDDEN = -1e30  # finite: a padded query that sees nothing must not become NaN


@dataclass(frozen=True)
class Windows:
    """Query i may see key j iff floor(i/W) W - W/2 <= j < floor(i/W) W + 3W/2."""

    size: int

    @property
    def parts(self) -> int:
        """Return the number of key blocks per query block."""
        return 2

    def margins(self, length: int) -> tuple[int, int]:
        """Return zeros before and after a take of `length` that complete its last window."""
        reach = (self.parts - 1) * self.size // 2
        return reach, reach + -length % self.size

    def queries(self, x: Tensor) -> Tensor:
        """Return the view [B, n, heads, W, d] of a take with margins [B, P, heads, d]."""
        reach, _ = self.margins(0)
        return x[:, reach : x.shape[1] - reach].unflatten(1, (-1, self.size)).transpose(2, 3)

    def keys(self, x: Tensor) -> Tensor:
        """Return the view [B, n, heads, parts W, d] whose windows overlap."""
        return x.unfold(1, self.parts * self.size, self.size).transpose(3, 4)

    def key_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the blocks of all windows, each [B, n, heads, W, d] without overlap."""
        blocks = x.unflatten(1, (-1, self.size)).transpose(2, 3)
        count = blocks.shape[1] - self.parts + 1
        return tuple(blocks[:, part : part + count] for part in range(self.parts))

    def near(self, device: torch.device) -> Tensor | None:
        """Return which keys of its window a query may see at all, bool [Q, K]; None: every one."""
        return None


@dataclass(frozen=True)
class Band(Windows):
    """Query i may see key j iff |i - j| <= W: three blocks of keys, cut along both diagonals."""

    @property
    def parts(self) -> int:
        return 3

    def near(self, device: torch.device) -> Tensor | None:
        """Return the band's mask; key 0 of a window lies W frames before the queries' block."""
        query = torch.arange(self.size, device=device)[:, None]
        key = torch.arange(self.parts * self.size, device=device) - self.size
        return (query - key).abs() <= self.size


@dataclass(frozen=True)
class Strides:
    """Query i may see key j iff i mod G == j mod G."""

    step: int

    def margins(self, length: int) -> tuple[int, int]:
        """Return zeros before and after a take of `length` that make all groups equally long."""
        return 0, -length % self.step

    def queries(self, x: Tensor) -> Tensor:
        """Return the view [B, G, heads, m, d] of a take with margins [B, m G, heads, d]."""
        return x.unflatten(1, (-1, self.step)).permute(0, 2, 3, 1, 4)

    def keys(self, x: Tensor) -> Tensor:
        """Return the same view: every group attends to itself."""
        return self.queries(x)

    def key_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the keys, which do not overlap."""
        return (self.queries(x),)

    def near(self, device: torch.device) -> Tensor | None:
        """Return every key of its group."""
        return None


Pattern = Windows | Strides


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
    seen = pattern.keys(with_margins(pattern, valid[:, :, None, None])).mT  # [B, n, 1, 1, K]
    if segment is not None:
        columns = with_margins(pattern, segment[:, :, None, None])
        seen = seen & (pattern.keys(columns).mT <= pattern.queries(columns))  # [B, n, 1, Q, K]
    near = pattern.near(valid.device)
    if near is not None:
        seen = seen & near
    bias = torch.zeros(seen.shape, dtype=dtype, device=valid.device)
    return Visibility(pattern, bias.masked_fill_(~seen, HIDDEN))


def with_margins(pattern: Pattern, x: Tensor) -> Tensor:
    """Return `x` [B, T, heads, d] with zeros before and after."""
    return F.pad(x, (0, 0, 0, 0, *pattern.margins(x.shape[1])))
