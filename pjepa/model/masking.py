"""Which tokens are hidden: the target set M of a take, and its context C (paper Sec. 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pjepa.ui.transfer import sent


@dataclass(frozen=True, eq=False)
class Mask:
    """C and M of a packed batch as indices, made once and best on the CPU: no GPU has to wait."""

    context: Tensor  # [C] long
    target: Tensor  # [M] long
    context_lengths: tuple[int, ...]  # context tokens of every take

    def to(self, device: torch.device | str) -> Mask:
        """Return the same mask on another device."""
        return Mask(sent(self.context, device), sent(self.target, device), self.context_lengths)


def mask_of(target: Tensor, take_lengths: tuple[int, ...]) -> Mask:
    """Return the mask of packed takes; `target` [N] is true at M."""
    takes = torch.split(~target, list(take_lengths))
    context_lengths = tuple(int(context.sum()) for context in takes)
    return Mask((~target).nonzero()[:, 0], target.nonzero()[:, 0], context_lengths)


def random_targets(tokens: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return M as bool [T]: round(p_m T) tokens at random, at least one target and one context."""
    target = np.zeros(tokens, bool)
    count = int(np.clip(round(ratio * tokens), 1, tokens - 1))
    target[rng.permutation(tokens)[:count]] = True
    return target
