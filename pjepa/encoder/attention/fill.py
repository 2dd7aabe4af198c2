"""Tokens of which most are one and the same: the predictor's input (paper Sec. 3.2, fill)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Fill:
    """Places of the tokens that are known, and of those that all hold the same vector.

    Such tokens are written as rows [C + 1, ...]: the known ones in order, then the common one.
    What is computed row by row is computed for C + 1 of them instead of N.
    """

    known: Tensor  # [C] long
    common: Tensor  # [N - C] long

    def spread(self, rows: Tensor) -> Tensor:
        """Return all tokens [N, ...] of rows [C + 1, ...]."""
        count = len(self.known) + len(self.common)
        full = rows[-1:].expand(count, *rows.shape[1:])
        return full.index_copy(0, self.known, rows[:-1])

    def gathered(self, tokens: Tensor) -> Tensor:
        """Return the gradient of rows [C + 1, ...], given that of all tokens [N, ...]."""
        common = tokens.index_select(0, self.common).sum(0, keepdim=True)
        return torch.cat([tokens.index_select(0, self.known), common])
