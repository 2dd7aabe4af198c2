"""The obvious version: one dense boolean mask."""

import torch
from torch import Tensor

from pjepa.model.attention import Layout


def allowed_pairs(take_lengths: tuple[int, ...], block: Tensor) -> Tensor:
    """Which query (row) sees which key: same take, key block <= query block (bool [N, N])."""
    lengths = torch.tensor(take_lengths, dtype=torch.long)
    take = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return (take[None, :] == take[:, None]) & (block[None, :] <= block[:, None])


def masked_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attention of q, k, v [N, heads, d] where `allowed` [N, N]."""
    scores = torch.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
    return torch.einsum("hij,jhd->ihd", weights, v)


def subset(layout: Layout, keep: Tensor) -> Layout:
    """The kept tokens only (bool [N]), at their original coordinates."""
    parts = torch.split(keep, list(layout.take_lengths))
    return layout.at(keep.nonzero()[:, 0], tuple(int(part.sum()) for part in parts))
