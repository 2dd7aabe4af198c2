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

from pjepa.pooler.models.attentive import AttentivePooler
from pjepa.pooler.models.positions import Positions, cell_positions, step_positions


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
    found = np.zeros((len(windows), longest, *windows[0].shape[1:]), windows[0].dtype)
    for place, window in enumerate(windows):
        found[place, : len(window)] = window
    return found, None if (lengths == longest).all() else lengths
