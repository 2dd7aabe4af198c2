"""The action pooler (paper Sec. 3.1, Eq. 1): patches of a window become one token per frame.

    V_n = CrossAttention(learned queries, SelfAttention(U)),  U in R^{n x cells x d_v}

A step of patches covers two frames sampled at twice the token rate, so a window of n steps gives n
tokens. With `queries` a multiple of the window a step gives several: the paper's literal reading,
frames at the token rate, is two.

Unlike the paper, `attend: steps` takes the cells of a step side by side as one row of U: on a
coarse grid this keeps where things are, where attention over cells must first learn to look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pjepa.nn.layers import Mlp

# The attentive pooler and classifier of V-JEPA (paper Eq. 1).

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
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x), mask))
        return x + self.drop(self.mlp(self.norm2(x)))


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
        self.drop = nn.Dropout(dropout)

    def forward(self, query: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        y = query + self.drop(self.xattn(query, self.norm1(x), mask))
        return y + self.drop(self.mlp(self.norm2(y)))


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
    ) -> None:
        super().__init__()
        self.query_tokens = nn.Parameter(torch.empty(1, queries, width))
        self.blocks = nn.ModuleList(
            SelfBlock(width, heads, mlp_ratio, dropout) for _ in range(depth - 1)
        )
        self.cross_attention_block = CrossBlock(width, heads, mlp_ratio, dropout)
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
        self.cross_attention_block.mlp.fc2.weight.div_((2.0 * max(len(self.blocks), 1)) ** 0.5)


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


# Positions of patches: sinusoids of step, row and column, added to the pooler's input.

Positions = Literal["none", "temporal", "spatiotemporal"]
LONGEST = 256.0  # wavelengths run from 2 pi to 2 pi * LONGEST steps


def sinusoids(position: Tensor, width: int) -> Tensor:
    """Return sines and cosines of positions [n] at geometric wavelengths, [n, width] float32."""
    half = (width + 1) // 2
    ladder = LONGEST ** (-torch.arange(half, device=position.device) / max(half - 1, 1))
    angle = position.float()[:, None] * ladder  # [n, half]
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :width]


def step_positions(count: int, per_step: float, width: int, device: torch.device) -> Tensor:
    """Return sinusoids [count, width] of times in steps, `per_step` of them to a step."""
    return sinusoids(torch.arange(count, device=device) / per_step, width)


def cell_positions(rows: int, columns: int, width: int, device: torch.device) -> Tensor:
    """Return sinusoids [cells, width]: rows in the first half of the channels, then columns."""
    cells = torch.arange(rows * columns, device=device)
    by_row = sinusoids(cells // columns, width // 2)
    by_column = sinusoids(cells % columns, width - width // 2)
    return torch.cat([by_row, by_column], dim=1)


@dataclass(frozen=True)
class ActionShape:
    """Everything that fixes the parameters of an action pooler."""

    rows: int
    columns: int
    width_in: int
    width: int
    window: int  # steps seen together
    queries: int  # tokens of a whole window
    depth: int
    heads: int
    mlp_ratio: float
    dropout: float
    positions: Positions
    attend: Literal["cells", "steps"] = "cells"

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @property
    def rows_per_step(self) -> int:
        """Return rows of U that one step gives."""
        return 1 if self.attend == "steps" else self.cells

    @property
    def row_width(self) -> int:
        """Return channels of a row of U."""
        return self.cells * self.width_in // self.rows_per_step

    @property
    def per_step(self) -> int:
        """Return tokens of one step."""
        return self.queries // self.window


class ActionPooler(nn.Module):
    """Scaled patches with positions -> attentive pooler with one query per frame of the window."""

    mean: Tensor  # [cells, width_in] of the training patches, or 0
    std: Tensor  # [cells, width_in], or 1

    def __init__(self, shape: ActionShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mean", torch.zeros(shape.cells, shape.width_in))
        self.register_buffer("std", torch.ones(shape.cells, shape.width_in))
        same = shape.width == shape.row_width
        self.project: nn.Module = nn.Identity() if same else nn.Linear(shape.row_width, shape.width)
        self.pooler = AttentivePooler(
            shape.queries, shape.width, shape.heads, shape.depth, shape.mlp_ratio, shape.dropout
        )

    def forward(self, patches: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return tokens [B, n * per_step, width] of patches [B, n, cells, width_in].

        `lengths` [B] are the real steps of every window; nothing looks at the rest, and tokens of
        padded steps mean nothing.
        """
        shape, steps = self.shape, patches.shape[1]
        x = (patches - self.mean) / self.std
        x = self.project(x.reshape(*x.shape[:2], shape.rows_per_step, -1))  # [B, n, rows, D]
        x = x.to(self.mean.dtype)  # under autocast too: what blocks add to stays exact
        if shape.positions != "none":
            x = x + step_positions(steps, 1, shape.width, x.device)[:, None]
        if shape.positions == "spatiotemporal" and shape.attend == "cells":
            x = x + cell_positions(shape.rows, shape.columns, shape.width, x.device)
        tokens = steps * shape.per_step
        time: Tensor | float = 0.0
        if shape.positions != "none":
            time = step_positions(tokens, shape.per_step, shape.width, x.device)
        real = None if lengths is None else real_places(lengths, steps, shape.rows_per_step)
        return self.pooler(x.flatten(1, 2), real, tokens, time)


def real_places(lengths: Tensor, steps: int, repeat: int) -> Tensor:
    """Return True for every place [B, steps * repeat] of the first `lengths` [B] steps."""
    real = torch.arange(steps, device=lengths.device) < lengths[:, None]  # [B, steps]
    return real.repeat_interleave(repeat, dim=1)


def padded(windows: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Return windows [n_i, cells, width] as one array [B, n, cells, width], and their lengths.

    Lengths are None where all are equal: attention without a mask is faster.
    """
    lengths = np.array([len(window) for window in windows])
    longest = int(lengths.max())
    values = np.zeros((len(windows), longest, *windows[0].shape[1:]), windows[0].dtype)
    for row, window in enumerate(windows):
        values[row, : len(window)] = window
    return values, None if (lengths == longest).all() else lengths
