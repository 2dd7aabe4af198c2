"""Pre-norm transformer blocks over packed tokens, shared by encoder and predictor."""

from __future__ import annotations

from timm.layers import Mlp
from torch import Tensor, nn

from pjepa.model.attention import Chunk, attend
from pjepa.model.rope import RopeTable, rotate


class Attention(nn.Module):
    """Multi-head attention with rotary positions; one fused linear ordered q, k, v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, table: RopeTable, plan: list[Chunk]) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # [N, 3, heads, d_h]
        q, k, v = qkv.unbind(1)
        out = attend(rotate(q, table), rotate(k, table), v, plan)  # [N, heads, d_h]
        return self.proj(out.flatten(-2))


class Block(nn.Module):
    """x + attention(norm x), then x + MLP(norm x); dropout on both branches while training."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, table: RopeTable, plan: list[Chunk]) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x), table, plan))
        return x + self.drop(self.mlp(self.norm2(x)))
