"""Attention along a sparse pattern with a hand-written gradient that keeps almost nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pjepa.nn.dropout import keep_mask
from pjepa.probes.shared.long_term.windowed import Pattern, Visibility, with_margins

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
    given, and so does k unless `own_keys`. Only the inputs and the dropout mask are kept; the
    backward pass repeats projections and softmax: a little time for a third of the memory.
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
        q, k, v = _folded(buffer, pattern)
        soft = _softmax(q, k, visible.bias.expand(len(x), -1, heads, -1, -1))
        keep = None
        if dropout:
            keep = keep_mask(soft.shape, dropout, x.device)
            soft.mul_(keep).div_(1 - dropout)
        ctx.save_for_backward(x, values, weight, offset, keep)
        ctx.visible, ctx.heads, ctx.dropout, ctx.own = visible, heads, dropout, own
        found = buffer.new_empty(*buffer.shape[:2], *buffer.shape[3:])  # [B, P, heads, d_h]
        target = pattern.queries(found)
        target.copy_(torch.bmm(soft, v).view(target.shape))
        return _inside(found, pattern, x.shape[1]).flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values, weight, offset, keep = ctx.saved_tensors
        pattern, heads = ctx.visible.pattern, ctx.heads
        sources = _sources(x, values, weight, ctx.own)
        buffer = _projected(sources, weight, offset, pattern, heads)
        q, k, v = _folded(buffer, pattern)
        soft = _softmax(q, k, ctx.visible.bias.expand(len(x), -1, heads, -1, -1))
        used = soft
        if keep is not None:
            used = keep.to(soft.dtype).mul_(soft).div_(1 - ctx.dropout)
        grad = with_margins(pattern, grad.unflatten(2, (heads, -1)))
        grad = pattern.queries(grad).flatten(0, 2)  # [N, Q, d_h]
        grad_v = torch.bmm(used.mT, grad)
        flow = torch.bmm(grad, v.mT).mul_(used)  # [N, Q, K], softmax times its gradient
        flow = flow.addcmul_(soft, flow.sum(-1, keepdim=True), value=-1)
        flow = flow.mul_(q.shape[-1] ** -0.5)  # gradient of the scores before scaling
        buffer = torch.zeros_like(buffer)
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


def _folded(buffer: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor, Tensor]:
    """Return q [N, Q, d_h] and k, v [N, K, d_h] of a buffer; views for one take and one head."""
    q, k, v = buffer.unbind(2)
    return (
        pattern.queries(q).flatten(0, 2),
        pattern.keys(k).flatten(0, 2),
        pattern.keys(v).flatten(0, 2),
    )


def _softmax(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    scores = torch.baddbmm(bias.flatten(0, 2), q, k.mT, alpha=q.shape[-1] ** -0.5)
    return torch.softmax(scores, -1, out=scores)


def _inside(x: Tensor, pattern: Pattern, length: int) -> Tensor:
    """Return `x` [B, P, ...] without its margins."""
    before, _ = pattern.margins(length)
    return x[:, before : before + length]


def _add(parts: tuple[Tensor, ...], grad: Tensor) -> None:
    """Add [N, K, d_h] to the views [B, n, heads, K / len(parts), d_h]."""
    for part, piece in zip(parts, grad.chunk(len(parts), 1), strict=True):
        part.add_(piece.unflatten(0, part.shape[:3]))
