"""The CPU kernel: torch's own flash attention, called on rectangles that are merged (`calls`).

The kernel returns the log-sum-exp l beside its output, which is all that merging needs. Its own
backward is given the merged output and the merged l: exp(score - l) is then the weight in the
whole softmax, in whichever rectangle the pair lies, and the gradients simply add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pjepa.model.calls import Call


def _op(name: str, arguments: str, returns: int) -> Any:
    """Return a private operator of torch; None if it is missing or its signature changed."""
    found = getattr(getattr(torch.ops.aten, name, None), "default", None)
    if found is None or [a.name for a in found._schema.arguments] != arguments.split():
        return None
    return found if len(found._schema.returns) == returns else None


_flash = _op(
    "_scaled_dot_product_flash_attention_for_cpu",
    "query key value dropout_p is_causal attn_mask scale",
    returns=2,
)
_flash_backward = _op(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "grad_out query key value out logsumexp dropout_p is_causal attn_mask scale",
    returns=3,
)


def is_usable(x: Tensor) -> bool:
    """Return whether the kernel exists and takes this tensor."""
    known = _flash is not None and _flash_backward is not None
    return known and x.device.type == "cpu" and x.dtype == torch.float32


def is_usable_widened(x: Tensor) -> bool:
    """Return whether the kernel takes this tensor after it is made float32."""
    return (
        x.dtype == torch.bfloat16 and x.device.type == "cpu" and is_usable(x.new_empty(0).float())
    )


def flash_attend(q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
    """Return the attention of packed float32 q, k, v [N, heads, d_h] on CPU -> [N, heads, d_h]."""
    q, k, v = _rows(q), _rows(k), _rows(v)
    if not torch.is_grad_enabled():
        return merged(q, k, v, calls)[0]
    out: Tensor = _FlashAttention.apply(q, k, v, calls)
    return out


def _rows(x: Tensor) -> Tensor:
    """Return x if every token is one dense row (as in a fused projection), else a copy."""
    _, heads, width = x.shape
    dense = x.stride(2) == 1 and x.stride(1) == width and x.stride(0) >= heads * width
    return x if dense else x.contiguous()


def merged(q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> tuple[Tensor, Tensor]:
    """Return output [M, heads, d_h] and log-sum-exp [M, heads] of queries, keys and values."""
    heads = _by_head(q, k, v)
    if calls and not any(c.merged for c in calls):  # in order, each query once
        found = [_call(c, *heads) for c in calls]
        outs, lses = ([x.transpose(1, 2) for x in parts] for parts in zip(*found, strict=True))
        return _joined(outs), _joined(lses)
    out = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:2])
    o_all, l_all = _by_head(out, lse)
    for c in calls:
        o, l_ = _narrowed(c.start, c.stop, o_all, l_all)
        part, l_part = _call(c, *heads)
        if c.merged:
            both = torch.logaddexp(l_, l_part)  # [1, heads, T]
            part = o.lerp(part, (l_part - both).exp_()[..., None])
            l_part = both
        o.copy_(part)
        l_.copy_(l_part)
    return out, lse


def _call(c: Call, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return output [1, heads, T, d_h] and log-sum-exp [1, heads, T] of one rectangle.

    q, k, v are `_by_head`: views are cheap, but a small step has thousands.
    """
    (query,), (key, value) = _narrowed(c.start, c.stop, q), _narrowed(c.first, c.last, k, v)
    found: tuple[Tensor, Tensor] = _flash(query, key, value, 0.0, c.causal, attn_mask=c.mask)
    return found


def _joined(parts: list[Tensor]) -> Tensor:
    """Return parts [1, T, heads, ...] as one [N, heads, ...]."""
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))[0]


def gradients_into(
    into: tuple[Tensor, Tensor, Tensor], grad: Tensor, saved: Sequence[Tensor], calls: list[Call]
) -> None:
    """Write the gradients of q, k, v; `saved` are q, k, v and what `merged` found."""
    q, k, v, out, lse = saved
    into[1].zero_()
    into[2].zero_()
    asked = _by_head(grad.contiguous(), q, out, lse)
    keys, (dq, dk, dv) = _by_head(k, v), _by_head(*into)
    for c in calls:
        of_out, query, *done = _narrowed(c.start, c.stop, *asked)
        pair = _narrowed(c.first, c.last, *keys)
        found = _flash_backward(of_out, query, *pair, *done, 0.0, c.causal, attn_mask=c.mask)
        (rows,), columns = _narrowed(c.start, c.stop, dq), _narrowed(c.first, c.last, dk, dv)
        rows.add_(found[0]) if c.merged else rows.copy_(found[0])
        columns[0].add_(found[1])
        columns[1].add_(found[2])


class _FlashAttention(torch.autograd.Function):
    """Softmax attention along calls; saves the merged log-sum-exp instead of weights."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
        out, lse = merged(q, k, v, calls)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.calls = calls
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        saved = ctx.saved_tensors  # read once: activation checkpointing allows no more
        q, k, v, *_ = saved
        into = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
        gradients_into(into, grad, saved, ctx.calls)
        return *into, None


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """Return tensors [N, heads, ...] as the kernel wants them: views [1, heads, N, ...]."""
    return [x.transpose(0, 1).unsqueeze(0) for x in tensors]


def _narrowed(start: int, stop: int, *tensors: Tensor) -> list[Tensor]:
    """Return the tokens [start, stop) of views by head."""
    return [x.narrow(2, start, stop - start) for x in tensors]
