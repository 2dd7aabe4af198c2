"""Learning rates: constant with step decay (paper Sec. 4) and a warm-up, or a half cosine."""

from __future__ import annotations

import math
from collections.abc import Sequence


def learning_rate(
    lr: float, epoch: int, step: int, milestones: Sequence[int], gamma: float, warmup_steps: int
) -> float:
    """Return the rate for `step` (counted over the whole run) in `epoch`, both from 0."""
    decayed = lr * gamma ** sum(epoch >= milestone for milestone in milestones)
    return warmed(decayed, step, warmup_steps)


def warmed(lr: float, step: int, warmup_steps: int) -> float:
    """Return the rate while it rises linearly over the first steps."""
    return lr * min(1.0, (step + 1) / warmup_steps) if warmup_steps else lr


def cosine_rate(lr: float, lr_min: float, done: int, length: int) -> float:
    """Return the rate after `done` of `length` steps or epochs, from `lr` down to `lr_min`."""
    turn = math.pi * done / length
    return lr_min + (lr - lr_min) * (1 + math.cos(turn)) / 2
