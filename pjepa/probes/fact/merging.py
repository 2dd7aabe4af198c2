"""The merged prediction of both branches: the probability of every class at every frame."""

from __future__ import annotations

import torch
from torch import Tensor

from pjepa.probes.fact.blocks import BlockOutput


def merged_probability(last: BlockOutput, frame_weight: float) -> Tensor:
    """Return (1 - w) P(class | the frame's token) + w P(class | the frame) [T, C].

    A frame's token is the one it attends to most among those whose best class is not null; if all
    are null, the frame branch decides alone.
    """
    assert last.exchange is not None
    by_frame = last.frame_logits.softmax(-1)
    alive = last.token_logits.argmax(-1) < by_frame.shape[-1]  # [M]
    attention = last.exchange.frame_attention().masked_fill(~alive[..., None, :], -1)
    token = attention.argmax(-1)  # [T]
    by_token = last.token_logits[..., :-1].softmax(-1).take_along_dim(token[..., None], -2)
    merged = (1 - frame_weight) * by_token + frame_weight * by_frame
    return torch.where(alive.any(-1)[..., None, None], merged, by_frame)
