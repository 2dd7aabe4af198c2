"""Positions of patches: sinusoids of step, row and column, added to the pooler's input.

Attention over patches without positions sees a set: a query cannot tell which patches belong to its
frame, so "one token per frame" would have no meaning. Queries carry the same sinusoids of their own
time, so that attending to the own frame is one inner product away.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

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
