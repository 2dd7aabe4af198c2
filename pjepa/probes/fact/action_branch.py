"""The action branch: transformers over the action tokens, and the attention between branches.

Tokens, frames and runs are rows, [M, C] and [T, C], or [B, M, C] and [B, T, C] for takes together,
padded where `padding` [B, T] says. Layers are post-norm. Parameters are named as in the
official checkpoints.
"""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

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
