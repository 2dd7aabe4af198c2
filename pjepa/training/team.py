"""Who trains: one process, or the ranks of `distributed.py`, behind the same few questions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from pjepa.training.data import View


class Team:
    """One process: it leads, and every share is the whole."""

    lead = True
    size = 1

    def share(self, views: Sequence[View]) -> Sequence[View]:
        """The part of a step this process works on."""
        return views

    def total(self, value: float) -> float:
        """The sum of a number over the team."""
        return value

    def gathered(self, targets: Tensor) -> Tensor:
        """Everybody's targets [M, d], in the step's order."""
        return targets

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model to call, such that backward leaves the team's summed gradient."""
        return model

    def passing(self, last: bool) -> AbstractContextManager[object]:
        """Around one forward and backward pass; gradients are exchanged in the step's last."""
        return nullcontext()
