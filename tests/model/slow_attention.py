"""The obvious version: one dense boolean mask per take."""

import torch
from torch import Tensor


def masked_attention(q: Tensor, k: Tensor, v: Tensor, block: Tensor) -> Tensor:
    """Attention of one take's q, k, v [T, heads, d] under key block <= query block."""
    allowed = block[None, :] <= block[:, None]  # [T, T]
    scores = torch.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
    return torch.einsum("hij,jhd->ihd", weights, v)
