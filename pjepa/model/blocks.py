"""Pre-norm transformer blocks over packed tokens, shared by encoder and predictor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pjepa.mlp import Mlp
from pjepa.model.attention import Attends, Plan
from pjepa.model.rope import RopeTable, rotate


class Attention(nn.Module):
    """Multi-head attention with rotary positions; one fused linear ordered q, k, v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, table: RopeTable, plan: Attends) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # [N, 3, heads, d_h]
        q, k = rotate(qkv[:, :2], table).unbind(1)
        out = plan.attend(q, k, qkv[:, 2])  # [N, heads, d_h]
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

    def forward(self, x: Tensor, table: RopeTable, plan: Attends) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x), table, plan))
        return x + self.drop(self.mlp(self.norm2(x)))


class Stack(nn.ModuleList):
    """Blocks one after the other; `recompute` trades time for memory while training."""

    recompute = False

    def run(self, x: Tensor, table: RopeTable, plan: Plan) -> Tensor:
        """x [N, d] after all blocks."""
        for block in self:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, table, plan, use_reentrant=False)
            else:
                x = block(x, table, plan)
        return x
