"""Projection, rotation and attention of a layer in one step on the CPU, with its gradient by hand.

    qkv = a W^T + b,  q and k turned by RoPE,  attention of q over k and v  (`flash`)

The same numbers as the modules compute one by one. What is saved is passes over memory and nodes
of the graph: q, k, v are turned where the projection wrote them and kept once, their gradients are
written into one tensor and turned back there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pjepa.model import flash
from pjepa.model.attention import AttentionPlan, RopeTable, rotate_
from pjepa.model.calls import Fill


def is_usable(x: Tensor) -> bool:
    """Return whether a gradient is needed and all is float32 on the CPU."""
    plain = not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    return torch.is_grad_enabled() and plain and flash.is_usable(x) and len(x) > 0


def projected_attend(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    heads: int,
    table: RopeTable,
    plan: AttentionPlan,
    fill: Fill | None,
) -> Tensor:
    """Return attention [M, heads d_h] at the plan's rows, of x [N, d], or [C + 1, d] if filled.

    `weight` [3 d, d] and `bias` stack the maps of queries, keys and values.
    """
    out: Tensor = _ProjectedAttention.apply(x, weight, bias, heads, table, plan, fill)
    return out


class _ProjectedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        heads: int,
        table: RopeTable,
        plan: AttentionPlan,
        fill: Fill | None,
    ) -> Tensor:
        rows = torch.addmm(bias, x, weight.T)
        if fill is not None:
            rows = fill.spread(rows)
        qkv = rows.unflatten(1, (3, heads, -1))  # [N, 3, heads, d_h]
        rotate_(qkv[:, :2], table)
        q, k, v = qkv.unbind(1)
        if plan.rows is not None:
            q = q.index_select(0, plan.rows)
        out, lse = flash.merged(q, k, v, plan.calls)
        ctx.save_for_backward(x, weight, qkv, q if plan.rows is not None else None, out, lse)
        ctx.table, ctx.plan, ctx.fill = table, plan, fill
        return out.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, qkv, q, out, lse = ctx.saved_tensors
        plan, fill, found = ctx.plan, ctx.fill, torch.empty_like(qkv)
        dq, dk, dv = found.unbind(1)
        into = dq if q is None else torch.empty_like(q)
        saved = (qkv[:, 0] if q is None else q, qkv[:, 1], qkv[:, 2], out, lse)
        flash.gradients_into((into, dk, dv), grad.view_as(out), saved, plan.calls)
        if q is not None:
            dq.zero_().index_copy_(0, plan.rows, into)
        rotate_(found[:, :2], ctx.table.back)
        rows = found.flatten(1)  # [N, 3 d]
        if fill is not None:
            rows = fill.gathered(rows)
        return (rows @ weight, rows.T @ x, rows.sum(0), None, None, None, None)
