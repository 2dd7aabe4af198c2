"""The CPU kernel: torch's own flash attention, called on rectangles that are merged (`calls`).

The kernel returns the log-sum-exp l beside its output, which is all that merging needs. Its own
backward is given the merged output and the merged l: exp(score - l) is then the weight in the
whole softmax, in whichever rectangle the pair lies, and the gradients simply add up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pjepa.model.calls import Call


def _op(name: str, arguments: str, returns: int) -> Any:
    """A private operator of torch, None if it is missing or not the one this file was made for."""
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
    """Whether the kernel exists and takes this tensor."""
    known = _flash is not None and _flash_backward is not None
    return known and x.device.type == "cpu" and x.dtype == torch.float32


def flash_attend(q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
    """Attention of packed float32 q, k, v [N, heads, d_h] on CPU -> [N, heads, d_h]."""
    out: Tensor = _FlashAttention.apply(_rows(q), _rows(k), _rows(v), calls)
    return out


def _rows(x: Tensor) -> Tensor:
    """x itself where every token is one dense row (a slice of a fused projection is), or a copy."""
    _, heads, width = x.shape
    dense = x.stride(2) == 1 and x.stride(1) == width and x.stride(0) >= heads * width
    return x if dense else x.contiguous()


class _FlashAttention(torch.autograd.Function):
    """Softmax attention along calls; saves the merged log-sum-exp instead of weights."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
        out = q.new_empty(q.shape)  # [N, heads, d_h]
        lse = q.new_empty(q.shape[:2])  # [N, heads]
        by_query, by_key = _by_head(q, out, lse), _by_head(k, v)
        for c in calls:
            query, o, l_ = (x.narrow(2, c.start, c.stop - c.start) for x in by_query)
            key, value = (x.narrow(2, c.first, c.last - c.first) for x in by_key)
            part, l_part = _flash(query, key, value, 0.0, c.causal, attn_mask=c.mask)
            if c.merged:
                both = torch.logaddexp(l_, l_part)  # [1, heads, T]
                part = o.lerp(part, (l_part - both).exp_()[..., None])
                l_part = both
            o.copy_(part)
            l_.copy_(l_part)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.calls = calls
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = (x.new_zeros(x.shape) for x in (q, k, v))
        by_query = _by_head(grad.contiguous(), q, out, lse, dq)
        by_key = _by_head(k, v, dk, dv)
        for c in ctx.calls:
            g, query, o, l_, *into_query = (
                x.narrow(2, c.start, c.stop - c.start) for x in by_query
            )
            key, value, *into_key = (x.narrow(2, c.first, c.last - c.first) for x in by_key)
            found = _flash_backward(g, query, key, value, o, l_, 0.0, c.causal, attn_mask=c.mask)
            for into, part in zip((*into_query, *into_key), found, strict=True):
                into.add_(part)
        return dq, dk, dv, None


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """Tensors [N, heads, ...] as the kernel wants them: views [1, heads, N, ...]."""
    return [x.transpose(0, 1).unsqueeze(0) for x in tensors]
