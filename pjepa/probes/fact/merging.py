"""What the two branches say together: the probability of every class at every frame."""

from __future__ import annotations

from torch import Tensor

from pjepa.probes.fact.blocks import BlockOutput


def merged_probability(last: BlockOutput, frame_weight: float) -> Tensor:
    """Return (1 - w) P(class | the frame's token) + w P(class | the frame) [T, C].

    A frame's token is the one it attends to most among those whose best class is not null; if all
    are null, the frames speak alone.
    """
    assert last.exchange is not None
    by_frame = last.frame_logits.softmax(1)
    alive = last.token_logits.argmax(1) < by_frame.shape[1]  # [M]
    if not alive.any():
        return by_frame
    token = last.exchange.frame_attention()[:, alive].argmax(1)  # [T]
    by_token = last.token_logits[alive, :-1].softmax(1)[token]
    return (1 - frame_weight) * by_token + frame_weight * by_frame
