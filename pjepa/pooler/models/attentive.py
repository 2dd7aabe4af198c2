"""The attentive pooler and classifier of V-JEPA; paper Eq. 1.

    x  += W_o softmax(q k^T / sqrt(d)) v,  q, k, v = W_qkv LN(x)     depth - 1 times, with an MLP
    y   = query + softmax(W_q query  (W_k LN(x))^T / sqrt(d)) W_v LN(x)
    out = y + MLP(LN(y))                                             one row per learned query

Parameter names equal the official ones, so released probes load with `strict=True`. Nothing here
knows a token's position: positions are added before (pjepa/pooler/models/positions.py).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pjepa.nn.dropout import add_dropped
from pjepa.nn.mlp import Mlp

EPS = 1e-5
INIT_STD = 0.02


def _heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Return x [B, N, parts * D] as `parts` tensors [B, heads, N, d_h]."""
    return x.unflatten(2, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def _merged(x: Tensor) -> Tensor:
    """Return heads [B, heads, N, d_h] side by side again, [B, N, D]."""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Every token looks at every real one; one fused linear ordered q, k, v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = _heads(self.qkv(x), 3, self.heads)
        return self.proj(_merged(scaled_dot_product_attention(q, k, v, mask)))


class SelfBlock(nn.Module):
    """A plain pre-norm block; dropout on both branches while training."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        p = self.dropout if self.training else 0.0
        x = add_dropped(x, self.attn(self.norm1(x), mask), p)
        return add_dropped(x, self.mlp(self.norm2(x)), p)


class CrossAttention(nn.Module):
    """Queries look at tokens; there is no output projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)

    def forward(self, query: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        (q,) = _heads(self.q(query), 1, self.heads)
        k, v = _heads(self.kv(x), 2, self.heads)
        return _merged(scaled_dot_product_attention(q, k, v, mask))


class CrossBlock(nn.Module):
    """Cross-attention with residual and MLP; the query itself is not normalised."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.xattn = CrossAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.dropout = dropout

    def forward(self, query: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        p = self.dropout if self.training else 0.0
        y = add_dropped(query, self.xattn(query, self.norm1(x), mask), p)
        return add_dropped(y, self.mlp(self.norm2(y)), p)


class AttentivePooler(nn.Module):
    """`depth - 1` self-attention blocks, then one cross-attention to learned queries (Eq. 1)."""

    def __init__(
        self,
        queries: int,
        width: int,
        heads: int,
        depth: int = 1,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        complete_block: bool = True,
    ) -> None:
        super().__init__()
        self.query_tokens = nn.Parameter(torch.empty(1, queries, width))
        self.blocks = nn.ModuleList(
            SelfBlock(width, heads, mlp_ratio, dropout) for _ in range(depth - 1)
        )
        self.cross_attention_block: CrossBlock | CrossAttention = (
            CrossBlock(width, heads, mlp_ratio, dropout)
            if complete_block
            else CrossAttention(width, heads)
        )
        self.initialise()

    def forward(
        self,
        x: Tensor,
        real: Tensor | None = None,
        queries: int | None = None,
        query_positions: Tensor | float = 0.0,
    ) -> Tensor:
        """Return the outputs [B, Q, D] of the first `queries` over x [B, N, D].

        `query_positions` [Q, D] are added to the queries; `real` [B, N] is False for padding.
        """
        mask = None if real is None else real[:, None, None]  # [B, 1, 1, N]
        for block in self.blocks:
            x = block(x, mask)
        query = self.query_tokens[:, :queries] + query_positions
        return self.cross_attention_block(query.expand(len(x), -1, -1), x, mask)

    @torch.no_grad()
    def initialise(self, std: float = INIT_STD) -> None:
        """Set normal weights and zero biases; residual branches shrink with depth."""
        nn.init.normal_(self.query_tokens, std=std)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
                nn.init.zeros_(module.bias)
        for number, block in enumerate(self.blocks):
            block.attn.proj.weight.div_((2.0 * (number + 1)) ** 0.5)  # type: ignore[union-attr,operator]
            block.mlp.fc2.weight.div_((2.0 * (number + 1)) ** 0.5)  # type: ignore[union-attr,operator]
        if isinstance(self.cross_attention_block, CrossBlock):
            last = max(len(self.blocks) - 1, 0)
            self.cross_attention_block.mlp.fc2.weight.div_((2.0 * (last + 1)) ** 0.5)


class AttentiveClassifier(nn.Module):
    """One learned query over the tokens and an affine layer: V-JEPA's attentive probe."""

    def __init__(
        self,
        width: int,
        heads: int,
        depth: int,
        classes: int,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pooler = AttentivePooler(1, width, heads, depth, mlp_ratio, dropout)
        self.linear = nn.Linear(width, classes)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Return logits [B, C] of tokens [B, N, D]."""
        return self.linear(self.pooler(x, real)[:, 0])
