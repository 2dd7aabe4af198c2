"""The action branch: transformers over the action tokens, and the attention between branches.

Tokens, frames and runs are rows, [M, C] and [T, C], or [B, M, C] and [B, T, C] for takes together,
padded where `padding` [B, T] says. Layers are post-norm. Parameters are named as in the
official checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, pad

from pjepa.probes.fact.config import FactConfig


def placed(x: Tensor, position: Tensor | None) -> Tensor:
    """Return x [..., N, C] with the position [..., N, P] added to its first P channels."""
    if position is None:
        return x
    return x + pad(position, (0, x.shape[-1] - position.shape[-1]))


def attended(
    layer: nn.MultiheadAttention, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None
) -> Tensor:
    """Return the attention of q [..., M, C] to k and v [..., N, C] without padding."""
    q, k, v = (x.transpose(0, -2) for x in (q, k, v))  # batches stand second there
    found, _ = layer(q, k, v, key_padding_mask=padding, need_weights=False)
    return found.transpose(0, -2)


class SelfLayer(nn.Module):
    """SA: self attention over tokens, then a feed-forward net."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        width, self.dropout = config.action_dim, config.dropout
        self.multihead_attn = nn.MultiheadAttention(width, config.action_heads, config.dropout)
        self.linear1 = nn.Linear(width, config.action_ffn)
        self.linear2 = nn.Linear(config.action_ffn, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, a: Tensor, position: Tensor) -> Tensor:
        q = placed(a, position)
        a = self.norm1(a + self.drop(attended(self.multihead_attn, q, q, a)))
        return self.norm2(a + self.drop(self.linear2(self.drop(self.linear1(a).relu()))))

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class SelfCrossLayer(nn.Module):
    """SCA: self attention over tokens, cross attention to frames, then a feed-forward net."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        width, heads, self.dropout = config.action_dim, config.action_heads, config.dropout
        self.self_attn = nn.MultiheadAttention(width, heads, config.dropout)
        self.multihead_attn = nn.MultiheadAttention(
            width, heads, config.dropout, kdim=config.hidden, vdim=config.hidden
        )
        self.linear1 = nn.Linear(width, config.action_ffn)
        self.linear2 = nn.Linear(config.action_ffn, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))

    def forward(
        self, a: Tensor, position: Tensor, x: Tensor, x_placed: Tensor, padding: Tensor | None
    ) -> Tensor:
        q = placed(a, position)
        a = self.norm1(a + self.drop(attended(self.self_attn, q, q, a)))
        read = attended(self.multihead_attn, placed(a, position), x_placed, x, padding)
        a = self.norm2(a + self.drop(read))
        return self.norm3(a + self.drop(self.linear2(self.drop(self.linear1(a).relu()))))

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class SelfBranch(nn.Module):
    """The tokens of blocks u and U: SA layers, then a map to the shared width."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        layer = SelfLayer(config)  # copied, so all layers start equal
        self.layers = nn.ModuleList(deepcopy(layer) for _ in range(config.update_action_layers))
        self.out_linear = nn.Linear(config.action_dim, config.hidden)

    def forward(self, a: Tensor, position: Tensor) -> Tensor:
        """Return tokens [M, hidden] of tokens a [M, action_dim]."""
        for layer in self.layers:
            a = layer(a, position)
        return self.out_linear(a)


class SelfCrossBranch(nn.Module):
    """The tokens of block i: SCA layers, a last norm, then a map to the shared width."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        layer = SelfCrossLayer(config)  # copied, so all layers start equal
        self.layers = nn.ModuleList(deepcopy(layer) for _ in range(config.action_layers))
        self.norm = nn.LayerNorm(config.action_dim)
        self.out_linear = nn.Linear(config.action_dim, config.hidden)

    def forward(
        self, position: Tensor, x: Tensor, x_position: Tensor | None, padding: Tensor | None
    ) -> Tensor:
        """Return tokens [M, hidden] that started empty and read the frames x [T, hidden]."""
        a, x_placed = position.new_zeros(*x.shape[:-2], *position.shape), placed(x, x_position)
        for layer in self.layers:
            a = layer(a, position, x, x_placed, padding)
        return self.out_linear(self.norm(a))


class OneHeadCrossAttention(nn.Module):
    """Cross-attention y' = W [y, softmax(q k / sqrt(hidden)) v]: y asks x, no residual, no norm."""

    def __init__(self, config: FactConfig, out: int) -> None:
        super().__init__()
        width, self.dropout = config.hidden, config.dropout
        self.X_K, self.X_V, self.Y_Q = (nn.Linear(width, width) for _ in range(3))
        self.Y_W = nn.Linear(2 * width, out)

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        x_position: Tensor | None,
        y_position: Tensor | None,
        padding: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return y's update [Y, out] and the attention logits [Y, X], which the losses need."""
        key, query = self.X_K(placed(x, x_position)), self.Y_Q(placed(y, y_position))
        logits = (query * key.shape[-1] ** -0.5) @ key.mT
        if padding is not None:
            logits = logits.masked_fill(padding[:, None], -math.inf)
        read = torch.cat([y, logits.softmax(-1) @ self.X_V(x)], dim=-1)  # [Y, 2 hidden]
        return self.Y_W(dropout(read, self.dropout, self.training)), logits


# The frame branch: dilated temporal convolutions over a whole take, MS-TCN or MS-TCN++.

FOLD_FROM = 4  # frames per channel from which folding three convolutions into one pays


def folded(first: Tensor, second: Tensor, fusion: Tensor, *biases: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight [5, C, O] and bias [O] of fusion(concat[first(x), second(x)]).

    Nothing non-linear stands between the three maps, so their weights can be multiplied first.
    Taps in order of time: first, second, the middle of both, second, first.
    """
    left, right = fusion.squeeze(2).chunk(2, dim=1)  # [O, C] each
    a = (left @ first.flatten(1)).view_as(first).permute(2, 1, 0)  # [3, C, O]
    b = (right @ second.flatten(1)).view_as(second).permute(2, 1, 0)
    weight = torch.stack([a[0], b[0], a[1] + b[1], b[2], a[2]])
    return weight, left @ biases[0] + right @ biases[1] + biases[2]


class FoldedLayer(torch.autograd.Function):
    """The layer y[t] = ReLU(bias + sum_k x[t + offset_k] W_k), `folded` W and bias: x [T, C], y [T,
    O].

    Five matrix products per frame instead of eight; what is shifted out of the take is not
    computed. Only x and the sign of y are kept for the gradient, the weights are folded again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: tuple[int, ...], *maps: Tensor) -> Tensor:
        weight, bias = folded(*maps)
        y = bias.repeat(len(x), 1)  # [T, O]
        for w, offset in zip(weight, offsets, strict=True):
            here, there = _inside(offset, len(x))
            y[here].addmm_(x[there], w)
        y.relu_()
        ctx.save_for_backward(x, y > 0, *maps)
        ctx.offsets = offsets
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, positive, *maps = ctx.saved_tensors
        with torch.enable_grad():
            maps = [part.detach().requires_grad_() for part in maps]
            weight, bias = folded(*maps)
        grad = grads[0] * positive
        x_grad, weight_grad = torch.zeros_like(x), torch.empty_like(weight)
        for k, offset in enumerate(ctx.offsets):
            here, there = _inside(offset, len(x))
            x_grad[there].addmm_(grad[here], weight[k].detach().T)
            torch.mm(x[there].T, grad[here], out=weight_grad[k])
        map_grads = torch.autograd.grad((weight, bias), maps, (weight_grad, grad.sum(0)))
        return x_grad, None, *map_grads


def _inside(offset: int, frames: int) -> tuple[slice, slice]:
    """Return the frames t for which t + offset is in the take, and those frames t + offset."""
    count = max(frames - abs(offset), 0)
    here, there = max(-offset, 0), max(offset, 0)
    return slice(here, here + count), slice(there, there + count)


def pointwise(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """Return the 1 x 1 convolution of x [..., T, C]."""
    return linear(x, conv.weight.squeeze(2), conv.bias)


def over_time(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """Return the convolution of x [..., T, C], zero-padded to the same length."""
    return conv(x.mT).mT if x.ndim == 3 else conv(x.T[None])[0].T


def shown(x: Tensor, padding: Tensor | None) -> Tensor:
    """Return x [..., T, C] with zeros where it is padding, as beyond the end of a take."""
    return x if padding is None else x.masked_fill(padding[..., None], 0)


def dual_dilated(x: Tensor, *convs: nn.Conv1d) -> Tensor:
    """Return ReLU(fusion(concat[first(x), second(x)])) of x [T, C] for those three `convs`."""
    first, second, fusion = convs
    if x.ndim == 3 or len(x) < FOLD_FROM * x.shape[1]:
        both = torch.cat([over_time(x, first), over_time(x, second)], dim=-1)  # [T, 2 C]
        return pointwise(both, fusion).relu()
    outer, inner = first.dilation[0], second.dilation[0]
    maps = [conv.weight for conv in convs] + [cast(Tensor, conv.bias) for conv in convs]
    return FoldedLayer.apply(x, (-outer, -inner, 0, inner, outer), *maps)


def conv3(width: int, dilation: int) -> nn.Conv1d:
    return nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)


class DualDilatedBranch(nn.Module):
    """Branch `m2`: MS-TCN++ layers, whose two convolutions have falling and growing dilations."""

    def __init__(self, config: FactConfig, layers: int, d_in: int | None) -> None:
        super().__init__()
        width, self.dropout = config.frame_dim, config.dropout
        self.conv_1x1_in = nn.Conv1d(d_in, width, 1) if d_in else None
        self.conv_dilated_1 = nn.ModuleList(conv3(width, 2**i) for i in reversed(range(layers)))
        self.conv_dilated_2 = nn.ModuleList(conv3(width, 2**i) for i in range(layers))
        self.conv_fusion = nn.ModuleList(nn.Conv1d(2 * width, width, 1) for _ in range(layers))
        self.conv_out = nn.Conv1d(width, config.hidden, 1)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return features [T, hidden] of x [T, d_in], or [T, frame_dim] without an input map."""
        f = x if self.conv_1x1_in is None else pointwise(x, self.conv_1x1_in)
        layers = zip(self.conv_dilated_1, self.conv_dilated_2, self.conv_fusion, strict=True)
        for i, convs in enumerate(cast(Iterable[tuple[nn.Conv1d, ...]], layers)):
            last = i == len(self.conv_fusion) - 1
            update = dual_dilated(shown(f, padding), *convs)
            f = f + dropout(update, self.dropout, self.training and not last)
        return pointwise(f, self.conv_out)


class DilatedLayer(nn.Module):
    """One MS-TCN layer: f + dropout(conv1x1(ReLU(conv3(f)))), then a layer norm if asked."""

    def __init__(self, config: FactConfig, dilation: int) -> None:
        super().__init__()
        width, self.dropout = config.frame_dim, config.dropout
        self.conv_dilated = conv3(width, dilation)
        self.conv_1x1 = nn.Conv1d(width, width, 1)
        self.norm = nn.LayerNorm(width) if config.frame_norm else nn.Identity()

    def forward(self, f: Tensor) -> Tensor:
        update = pointwise(over_time(f, self.conv_dilated).relu(), self.conv_1x1)
        return self.norm(f + dropout(update, self.dropout, self.training))


class DilatedBranch(nn.Module):
    """Branch `m`: MS-TCN layers with growing dilations."""

    def __init__(self, config: FactConfig, layers: int, d_in: int | None) -> None:
        super().__init__()
        self.conv_1x1 = nn.Conv1d(d_in, config.frame_dim, 1) if d_in else None
        self.layers = nn.ModuleList(DilatedLayer(config, 2**i) for i in range(layers))
        self.conv_out = nn.Conv1d(config.frame_dim, config.hidden, 1)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return features [T, hidden] of x [T, d_in], or [T, frame_dim] without an input map."""
        f = x if self.conv_1x1 is None else pointwise(x, self.conv_1x1)
        for layer in self.layers:
            f = layer(shown(f, padding))
        return pointwise(f, self.conv_out)


def frame_branch(config: FactConfig, layers: int, d_in: int | None = None) -> nn.Module:
    """Return the branch that `config.frame` names; `d_in` is the width its input map reads."""
    kind = DualDilatedBranch if config.frame == "m2" else DilatedBranch
    return kind(config, layers, d_in)
