"""Dropout that is cheap on a CPU.

torch draws one 64-bit random number per element there; here four elements share one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

BITS = 16  # random bits per dropped element: p is exact to 2^-17


def keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """Return int8 of `shape`, 1 with probability 1 - p."""
    count = math.prod(shape)
    words = torch.empty(-(-count * BITS // 64), dtype=torch.int64, device=device)
    bits = words.random_(-(2**63), None).view(torch.int16)[:count]
    return (bits >= round(p * 2**BITS) - 2 ** (BITS - 1)).view(torch.int8).view(shape)


def dropped(x: Tensor, p: float) -> Tensor:
    """Return `dropout(x, p)`."""
    if not p:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * keep_mask(x.shape, p, x.device).to(x.dtype).mul_(1 / (1 - p))


def add_dropped(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return `x + dropout(y, p)`; y may have less precision than x (autocast)."""
    if not p:
        return x + y
    return _AddDropped.apply(x, y, p) if y.device.type == "cpu" else x + F.dropout(y, p)


class _AddDropped(Function):
    """The ordinary formula with a gradient by hand: nothing but the mask waits for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, p: float) -> Tensor:
        keep = keep_mask(y.shape, p, y.device)
        ctx.save_for_backward(keep)
        ctx.scale, ctx.dtype = 1 / (1 - p), y.dtype
        noise = keep.to(x.dtype)
        return torch.addcmul(x, y.to(x.dtype), noise, value=ctx.scale, out=noise)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grad, keep.to(ctx.dtype).mul_(grad).mul_(ctx.scale), None
