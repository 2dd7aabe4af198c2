"""Attention along a sparse pattern with a hand-written gradient that keeps almost nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pjepa.nn.dropout import keep_mask
from pjepa.probes.shared.long_term.windowed import Pattern, Visibility, with_margins

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
        keep = keep_mask(soft.shape, dropout, x.device) if dropout else None
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
