"""Pre-norm transformer blocks over packed tokens, shared by encoder and predictor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pjepa.encoder import projected
from pjepa.encoder.attention import flash
from pjepa.encoder.attention.fill import Fill
from pjepa.encoder.attention.plan import Attends, AttentionPlan
from pjepa.encoder.rope import RopeTable, rotate, rotate_
from pjepa.nn.dropout import add_dropped
from pjepa.nn.mlp import Mlp


class Attention(nn.Module):
    """Multi-head attention with rotary positions; one fused linear ordered q, k, v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(
        self, x: Tensor, table: RopeTable, plan: Attends, fill: Fill | None = None
    ) -> Tensor:
        """Return [M, d] at the plan's rows; x [N, d] may be filled up from [C + 1, d]."""
        if isinstance(plan, AttentionPlan) and projected.is_usable(x):
            weight, bias = self.qkv.weight, self.qkv.bias
            out = projected.projected_attend(x, weight, bias, self.heads, table, plan, fill)
            return self.proj(out)
        rows = self.qkv(x)
        if fill is not None:
            rows = fill.spread(rows)
        qkv = rows.unflatten(-1, (3, self.heads, -1))  # [N, 3, heads, d_h]
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not flash.is_usable(qkv):
            q, k = rotate(qkv[:, :2], table).unbind(1)
        else:  # nobody else has seen these numbers
            rotate_(qkv[:, :2], table)
            q, k = qkv[:, 0], qkv[:, 1]
        out = plan.attend(q, k, qkv[:, 2])  # [M, heads, d_h]
        return self.proj(out.flatten(-2))


class Block(nn.Module):
    """A pre-norm block: x + attention(norm x), then x + MLP(norm x); dropout on both branches."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.dropout = dropout

    def forward(
        self, x: Tensor, table: RopeTable, plan: Attends, fill: Fill | None = None
    ) -> Tensor:
        """Return [M, d] at the plan's rows; x [N, d] may be filled up from [C + 1, d]."""
        p = self.dropout if self.training else 0.0
        found = self.attn(self.norm1(x), table, plan, fill)
        x = x if fill is None else fill.spread(x)
        x = x if plan.rows is None else x.index_select(0, plan.rows)
        x = add_dropped(x, found, p)
        return add_dropped(x, self.mlp(self.norm2(x)), p)


class Stack(nn.ModuleList):
    """Blocks one after the other; `recompute` trades time for memory while training."""

    recompute = False

    def run(
        self,
        x: Tensor,
        table: RopeTable,
        plan: AttentionPlan,
        rows: Tensor | None = None,
        fill: Fill | None = None,
    ) -> Tensor:
        """Return x [N, d] after all blocks; with `rows` [M], the last block computes only those.

        With `fill`, x [C + 1, d] is what all tokens are filled up from.
        """
        for number, block in enumerate(self):
            last = plan if rows is None or number < len(self) - 1 else plan.at(rows)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, table, last, fill, use_reentrant=False)
            else:
                x = block(x, table, last, fill)
            fill = None
        return x
