"""Input normalisation: masked prediction loves whatever stays the same over a take.

Camera, person and light are constant over a take and easy to predict; removing their mean leaves
the procedure. `causal_center` uses only tokens a query may see, and leans on the training mean
until it has seen enough, so that the first segment is not erased.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pjepa.model.layout import Layout


def take_mean(x: Tensor, layout: Layout) -> Tensor:
    """The mean over the whole take, for every token [N, D]. Sees the future."""
    parts = torch.split(x, list(layout.take_lengths))
    return torch.cat([part.mean(dim=0, keepdim=True).expand_as(part) for part in parts])


def visible_mean(x: Tensor, layout: Layout, block: Tensor, prior: float) -> Tensor:
    """The mean of all tokens up to the end of the token's block, shrunk to 0 by `prior` tokens."""
    means = []
    first = 0
    for length in layout.take_lengths:
        part, ids = x[first : first + length], block[first : first + length]
        sums = part.cumsum(dim=0)  # [T, D]
        last = torch.searchsorted(ids.contiguous(), ids.contiguous(), right=True) - 1  # [T]
        means.append(sums[last] / (last[:, None] + 1 + prior))
        first += length
    return torch.cat(means) if means else x
