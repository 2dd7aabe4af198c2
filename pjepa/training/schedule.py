"""Learning rate: constant with step decay (paper Sec. 4), with an optional linear warm-up."""

from __future__ import annotations

from collections.abc import Sequence


def learning_rate(
    lr: float, epoch: int, step: int, milestones: Sequence[int], gamma: float, warmup_steps: int
) -> float:
    """The rate for `step` (counted over the whole run) in `epoch`, both from 0."""
    decayed = lr * gamma ** sum(epoch >= milestone for milestone in milestones)
    return decayed * min(1.0, (step + 1) / warmup_steps) if warmup_steps else decayed
