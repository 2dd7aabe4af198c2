"""The two branches of a block: action tokens [M, C], frames of a whole take [T, C].

Transformer layers are post-norm. Parameters are named as in the official checkpoints.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pjepa.probes.fact.config import FactConfig


class SelfLayer(nn.Module):
    """SA: self attention over tokens, then a feed-forward net."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        width = config.action_dim
        self.multihead_attn = nn.MultiheadAttention(width, config.action_heads, config.dropout)
        self.linear1 = nn.Linear(width, config.action_ffn)
        self.linear2 = nn.Linear(config.action_ffn, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, a: Tensor, position: Tensor) -> Tensor:
        q = a + position
        a = self.norm1(a + self.drop(self.multihead_attn(q, q, a, need_weights=False)[0]))
        return self.norm2(a + self.drop(self.linear2(self.drop(self.linear1(a).relu()))))


class SelfCrossLayer(nn.Module):
    """SCA: self attention over tokens, cross attention to frames, then a feed-forward net."""

    def __init__(self, config: FactConfig) -> None:
        super().__init__()
        width, heads, frames = config.action_dim, config.action_heads, config.hidden
        self.self_attn = nn.MultiheadAttention(width, heads, config.dropout)
        self.multihead_attn = nn.MultiheadAttention(
            width, heads, config.dropout, kdim=frames, vdim=frames
        )
        self.linear1 = nn.Linear(width, config.action_ffn)
        self.linear2 = nn.Linear(config.action_ffn, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, a: Tensor, position: Tensor, x: Tensor) -> Tensor:
        q = a + position
        a = self.norm1(a + self.drop(self.self_attn(q, q, a, need_weights=False)[0]))
        read = self.multihead_attn(a + position, x, x, need_weights=False)[0]
        a = self.norm2(a + self.drop(read))
        return self.norm3(a + self.drop(self.linear2(self.drop(self.linear1(a).relu()))))


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

    def forward(self, position: Tensor, x: Tensor) -> Tensor:
        """Return tokens [M, hidden] that started empty and read the frames x [T, hidden]."""
        a = torch.zeros_like(position)
        for layer in self.layers:
            a = layer(a, position, x)
        return self.out_linear(self.norm(a))


class OneHeadCrossAttention(nn.Module):
    """Cross-attention y' = W [y, softmax(q k / sqrt(hidden)) v]: y asks x, no residual, no norm.

    Positions [N, P], if given, are added to the first P channels of keys or queries.
    """

    def __init__(self, config: FactConfig, out: int) -> None:
        super().__init__()
        width = config.hidden
        self.X_K, self.X_V, self.Y_Q = (nn.Linear(width, width) for _ in range(3))
        self.Y_W = nn.Linear(2 * width, out)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        x_position: Tensor | None = None,
        y_position: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return y's update [Y, out] and the attention logits [Y, X], which the losses need."""
        key, query = self.X_K(placed(x, x_position)), self.Y_Q(placed(y, y_position))
        logits = (query * key.shape[-1] ** -0.5) @ key.mT
        read = torch.cat([y, logits.softmax(-1) @ self.X_V(x)], dim=-1)  # [Y, 2 hidden]
        return self.Y_W(self.drop(read)), logits


def placed(x: Tensor, position: Tensor | None) -> Tensor:
    """Return x [N, C] with the position [N, P] added to its first P channels."""
    return x if position is None else x + pad(position, (0, x.shape[-1] - position.shape[-1]))


class FrameBranch(nn.Module):
    """MS-TCN++ layers, whose two dilated convolutions have falling and growing dilations."""

    def __init__(self, config: FactConfig, layers: int, d_in: int | None = None) -> None:
        super().__init__()
        width = config.frame_dim
        self.conv_1x1_in = nn.Conv1d(d_in, width, 1) if d_in else None
        self.conv_dilated_1 = nn.ModuleList(conv3(width, 2**i) for i in reversed(range(layers)))
        self.conv_dilated_2 = nn.ModuleList(conv3(width, 2**i) for i in range(layers))
        self.conv_fusion = nn.ModuleList(nn.Conv1d(2 * width, width, 1) for _ in range(layers))
        self.conv_out = nn.Conv1d(width, config.hidden, 1)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [T, hidden] of x [T, d_in], or [T, frame_dim] without an input map."""
        f = x.T if self.conv_1x1_in is None else self.conv_1x1_in(x.T)  # [C, T]
        layers = zip(self.conv_dilated_1, self.conv_dilated_2, self.conv_fusion, strict=True)
        for i, (first, second, fusion) in enumerate(layers):
            update = fusion(torch.cat([first(f), second(f)])).relu()
            last = i == len(self.conv_fusion) - 1
            f = f + (update if last else self.drop(update))
        return self.conv_out(f).T


def conv3(width: int, dilation: int) -> nn.Conv1d:
    return nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
