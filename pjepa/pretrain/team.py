"""Who trains: one process, or the ranks of `distributed.py`, behind the same few questions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from pjepa.pretrain.takes.views import TakeView


class Team:
    """One process: it leads, and every share is the whole."""

    lead = True
    size = 1

    def share(self, views: Sequence[TakeView]) -> Sequence[TakeView]:
        """Return the part of a step this process works on."""
        return views

    def total(self, value: float) -> float:
        """Return the sum of a number over the team."""
        return value

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over the team, where it lies."""
        return values

    def gathered(self, targets: Tensor) -> Tensor:
        """Return everybody's targets [M, d], in the step's order."""
        return targets

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Return the model to call; its backward leaves the team's summed gradient."""
        return model

    def passing(self, last: bool) -> AbstractContextManager[object]:
        """Wrap one forward and backward pass; gradients are exchanged in the step's last."""
        return nullcontext()
