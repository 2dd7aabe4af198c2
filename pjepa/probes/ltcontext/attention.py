"""The sparse attentions of LTContext, on views of the take instead of copied windows.

`Windows`: queries lie in blocks of W frames, a block sees the 2W frames centred on it. `Band`: a
query sees W frames to either side. `Strides`: frames at the same position modulo G see each other.
All grids start at frame 0. Which keys a query may see is a bias that depends on the take alone,
made once and shared by all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
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


# Attention along a sparse pattern with a hand-written gradient that keeps almost nothing.

KEPT = 2**17  # elements of q, k, v and softmax: 0.5 MB a layer; above that they are made again
Sources = list[tuple[Tensor, slice]]


def sparse_attention(
    x: Tensor,
    values: Tensor | None,
    weight: Tensor,
    offset: Tensor,
    visible: Visibility,
    heads: int,
    dropout: float,
    own_keys: bool = True,
) -> Tensor:
    """Return dropout(softmax(q k^T / sqrt(d_h) + bias)) v, [B, T, e], where q, k, v = weight x +
    offset.

    `weight` [3e, d] stacks the maps of queries, keys and values; v comes from `values` [B, T, d] if
    given, and so does k unless `own_keys`. Of a long take only the inputs and the dropout mask are
    kept; the backward pass repeats projections and softmax: a little time for a third of the
    memory. Of a short one, q, k, v and the softmax are kept too.
    """
    own = 2 if own_keys else 1
    return _SparseAttention.apply(x, values, weight, offset, visible, heads, dropout, own)


class _SparseAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        values: Tensor | None,
        weight: Tensor,
        offset: Tensor,
        visible: Visibility,
        heads: int,
        dropout: float,
        own: int,
    ) -> Tensor:
        pattern = visible.pattern
        buffer = _projected(_sources(x, values, weight, own), weight, offset, pattern, heads)
        parts = _attended(buffer, visible, heads)
        v, soft = parts[2:]
        small = sum(part.numel() for part in parts) <= KEPT
        keep = torch.rand_like(soft) >= dropout if dropout else None
        ctx.save_for_backward(x, values, weight, offset, keep, *(parts if small else ()))
        if keep is not None:
            soft = (soft * keep if small else soft.mul_(keep)).div_(1 - dropout)
        ctx.visible, ctx.heads, ctx.dropout, ctx.own = visible, heads, dropout, own
        found = buffer.new_empty(*buffer.shape[:2], *buffer.shape[3:])  # [B, P, heads, d_h]
        target = pattern.queries(found)
        target.copy_(torch.bmm(soft, v).view(target.shape))
        ctx.shape = buffer.shape
        return _inside(found, pattern, x.shape[1]).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values, weight, offset, keep, *parts = ctx.saved_tensors
        pattern, heads = ctx.visible.pattern, ctx.heads
        sources = _sources(x, values, weight, ctx.own)
        if not parts:
            buffer = _projected(sources, weight, offset, pattern, heads)
            parts = _attended(buffer, ctx.visible, heads)
        q, k, v, soft = parts
        used = soft
        if keep is not None:
            used = keep.to(soft.dtype).mul_(soft).div_(1 - ctx.dropout)
        grad = with_margins(pattern, grad.unflatten(2, (heads, -1)))
        grad = pattern.queries(grad).flatten(0, 2)  # [N, Q, d_h]
        grad_v = torch.bmm(used.mT, grad)
        flow = torch.bmm(grad, v.mT).mul_(used)  # [N, Q, K], softmax times its gradient
        flow = flow.addcmul_(soft, flow.sum(-1, keepdim=True), value=-1)
        flow = flow.mul_(q.shape[-1] ** -0.5)  # gradient of the scores before scaling
        buffer = weight.new_zeros(ctx.shape)
        _add((pattern.queries(buffer[:, :, 0]),), torch.bmm(flow, k))
        _add(pattern.key_parts(buffer[:, :, 1]), torch.bmm(flow.mT, q))
        _add(pattern.key_parts(buffer[:, :, 2]), grad_v)
        rows = _inside(buffer, pattern, x.shape[1]).flatten(2)  # [B, T, 3e]
        return *_projected_backward(sources, weight, rows), None, None, None, None


def _projected(
    sources: Sources, weight: Tensor, offset: Tensor, pattern: Pattern, heads: int
) -> Tensor:
    """Return queries, keys and values with margins, [B, P, 3, heads, d_h], in one buffer."""
    batch, length, _ = sources[0][0].shape
    before, after = pattern.margins(length)
    buffer = weight.new_empty(batch, before + length + after, len(weight))
    buffer[:, :before], buffer[:, before + length :] = 0, 0
    for source, part in sources:
        for take, rows in zip(source, buffer[:, before : before + length, part], strict=True):
            torch.addmm(offset[part], take, weight[part].T, out=rows)
    return buffer.unflatten(2, (3, heads, -1))


def _projected_backward(
    sources: Sources, weight: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Return gradients of x, values, weight and offset from that of the projections."""
    flat = grad.flatten(0, 1)
    grad_weight = torch.empty_like(weight)
    found = []
    for source, part in sources:
        torch.mm(flat[:, part].T, source.flatten(0, 1), out=grad_weight[part])
        found.append(torch.mm(flat[:, part], weight[part]).view_as(source))
    return found[0], found[1] if len(found) > 1 else None, grad_weight, flat.sum(0)


def _sources(x: Tensor, values: Tensor | None, weight: Tensor, own: int) -> Sources:
    """Return which input feeds which rows of the weight: x the first `own` of q, k, v."""
    rows = len(weight)
    if values is None:
        return [(x, slice(0, rows))]
    cut = rows // 3 * own
    return [(x, slice(0, cut)), (values, slice(cut, rows))]


def _attended(buffer: Tensor, visible: Visibility, heads: int) -> list[Tensor]:
    """Return q [N, Q, d_h], k and v [N, K, d_h] of a buffer, and the softmax [N, Q, K].

    q, k, v are views for one take and one head.
    """
    pattern = visible.pattern
    first, *others = buffer.unbind(2)
    q, k, v = (x.flatten(0, 2) for x in (pattern.queries(first), *map(pattern.keys, others)))
    bias = visible.bias.expand(len(buffer), -1, heads, -1, -1).flatten(0, 2)
    scores = torch.baddbmm(bias, q, k.mT, alpha=q.shape[-1] ** -0.5)
    return [q, k, v, torch.softmax(scores, -1, out=scores)]


def _inside(x: Tensor, pattern: Pattern, length: int) -> Tensor:
    """Return `x` [B, P, ...] without its margins."""
    before, _ = pattern.margins(length)
    return x[:, before : before + length]


def _add(parts: tuple[Tensor, ...], grad: Tensor) -> None:
    """Add [N, K, d_h] to the views [B, n, heads, K / len(parts), d_h]."""
    for part, piece in zip(parts, grad.chunk(len(parts), 1), strict=True):
        part.add_(piece.unflatten(0, part.shape[:3]))
