"""Attention on the CPU: torch's own flash kernel on rectangles of (query, key) pairs, merged.

No single call can leave out what a token must not see without a T x T mask. But the kernel returns
the log-sum-exp l of its scores beside its output, so what was found over two disjoint sets A, B of
keys is merged exactly:

    l = log(exp(l_A) + exp(l_B)),   out = exp(l_A - l) out_A + exp(l_B - l) out_B

| take  | calls for the queries of a few blocks                                                |
|-------|--------------------------------------------------------------------------------------|
| short | one with a mask over all keys up to the end of the last block                        |
| long  | one over the keys that all of them see; one with a small mask for the rest, merged   |

So masks are linear in T. The kernel's own backward is given the merged out and l: exp(score - l) is
then the weight in the whole softmax, in whichever call the pair lies, and the gradients add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pjepa.core.runs import whole_runs

# Where one way becomes faster than the other, measured on one core.
SHORT_TAKE = 1536  # tokens: up to here a mask over all earlier keys beats a second call,
SHORT_ROWS = 96  # for so many queries at a time,
LONG_ROWS = 256  # and for so many in a longer take


def _op(name: str, arguments: str, returns: int) -> Any:
    """Return a private operator of torch; None if it is missing or its signature changed."""
    op = getattr(getattr(torch.ops.aten, name, None), "default", None)
    if op is None or [a.name for a in op._schema.arguments] != arguments.split():
        return None
    return op if len(op._schema.returns) == returns else None


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
    """Return whether the kernel exists and takes this tensor, bfloat16 after it is widened."""
    exists = _flash is not None and _flash_backward is not None
    return exists and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Call:
    """Queries [start, stop) against keys [first, last)."""

    start: int
    stop: int
    first: int
    last: int
    mask: Tensor | None = None  # added to the scores [queries, keys]
    merged: bool = False  # with what the call before found for these queries


def calls_of(first: Tensor, last: Tensor) -> list[Call]:
    """Return the calls for queries that see keys [first, last) [M]; both only grow."""
    low, high = first.numpy(), last.numpy()
    calls: list[Call] = []
    takes = np.flatnonzero(np.diff(low)) + 1
    for begin, end in pairwise([0, *takes.tolist(), len(low)]):
        if begin == end:
            continue
        short = high[end - 1] - low[begin] <= SHORT_TAKE
        for start, stop in whole_runs(high, begin, end, SHORT_ROWS if short else LONG_ROWS):
            oldest, common, newest = int(low[start]), int(high[start]), int(high[stop - 1])
            if short or common == newest:
                mask = _mask(high[start:stop], oldest, newest)
                calls.append(Call(start, stop, oldest, newest, mask))
                continue
            calls.append(Call(start, stop, oldest, common))
            later = int(np.searchsorted(high, common, "right"))  # they see more than that
            mask = _mask(high[later:stop], common, newest)
            calls.append(Call(later, stop, common, newest, mask, merged=True))
    return calls


def _mask(last: np.ndarray, low: int, high: int) -> Tensor | None:
    """Return what hides keys [low, high) from queries that see them up to `last`, if anything."""
    if last[0] == high:
        return None
    hidden = np.arange(low, high) >= last[:, None]
    return torch.from_numpy(np.where(hidden, np.float32(-np.inf), np.float32(0)))


def flash_attend(q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
    """Return the attention [M, heads, d_h] of float32 queries [M, heads, d_h] on k, v [N, ...]."""
    q, k, v = _rows(q), _rows(k), _rows(v)
    if not torch.is_grad_enabled():
        return _merged(q, k, v, calls)[0]
    out: Tensor = _FlashAttention.apply(q, k, v, calls)
    return out


def _rows(x: Tensor) -> Tensor:
    """Return x if every token is one dense row (as in a fused projection), else a copy."""
    _, heads, width = x.shape
    dense = x.stride(2) == 1 and x.stride(1) == width and x.stride(0) >= heads * width
    return x if dense else x.contiguous()


def _merged(q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> tuple[Tensor, Tensor]:
    """Return output [M, heads, d_h] and log-sum-exp [M, heads]."""
    (queries,), keys = _by_head(q), _by_head(k, v)
    outs, lses = [queries[:, :, :0]], [queries[:, :, :0, 0]]  # [1, heads, T, ...] of some queries
    for c in calls:
        query = queries.narrow(2, c.start, c.stop - c.start)
        out, lse = _flash(query, *_narrowed(c.first, c.last, *keys), 0.0, False, attn_mask=c.mask)
        if not c.merged:
            outs.append(out)
            lses.append(lse)
            continue
        before, l_before = (x[:, :, c.start - c.stop :] for x in (outs[-1], lses[-1]))
        both = torch.logaddexp(l_before, lse)
        before.lerp_(out, (lse - both).exp_()[..., None])
        l_before.copy_(both)
    joined = [torch.cat([x.transpose(1, 2) for x in parts], dim=1)[0] for parts in (outs, lses)]
    return joined[0], joined[1]


class _FlashAttention(torch.autograd.Function):
    """Softmax attention along calls; saves the merged log-sum-exp instead of weights."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, calls: list[Call]) -> Tensor:
        out, lse = _merged(q, k, v, calls)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.calls = calls
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        of_queries, of_keys = _by_head(grad.contiguous(), q, out, lse, dq), _by_head(k, v, dk, dv)
        for c in ctx.calls:
            of_out, query, *done, into = _narrowed(c.start, c.stop, *of_queries)
            key, value, into_key, into_value = _narrowed(c.first, c.last, *of_keys)
            gradients = _flash_backward(
                of_out, query, key, value, *done, 0.0, False, attn_mask=c.mask
            )
            into.add_(gradients[0]) if c.merged else into.copy_(gradients[0])
            into_key.add_(gradients[1])
            into_value.add_(gradients[2])
        return dq, dk, dv, None


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """Return tensors [N, heads, ...] as the kernel wants them: views [1, heads, N, ...]."""
    return [x.transpose(0, 1).unsqueeze(0) for x in tensors]


def _narrowed(start: int, stop: int, *tensors: Tensor) -> list[Tensor]:
    """Return the tokens [start, stop) of views by head."""
    return [x.narrow(2, start, stop - start) for x in tensors]
