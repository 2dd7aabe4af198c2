"""The MLP of every transformer block here.

Unlike elsewhere, not timm's, which has the same layers and names: importing it loads all models of
timm, torchvision and torch's compiler, about as long as torch itself, in every process.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Mlp(nn.Module):
    """The MLP fc2(gelu(fc1 x)), with dropout after both."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))
        return out


# Dropout that is cheap on a CPU.

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
