"""Mean and spread of every channel, for standardised inputs."""

from collections.abc import Sequence

import torch
from torch import Tensor

CONSTANT = 1e-6  # a channel that varies less than this, relative to its mean, is left unscaled


def channel_scale(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation per channel over parts [N, D] of a table.

    1 for channels that do not vary.
    """
    count = sum(len(part) for part in parts)
    mean = torch.stack([part.sum(0, dtype=torch.float64) for part in parts]).sum(0) / count
    square = torch.zeros_like(mean)
    for part in parts:
        square += (part.double() - mean).square_().sum(0)
    std = (square / count).sqrt()
    std = torch.where(std <= CONSTANT * mean.abs() + 1e-12, torch.ones_like(std), std)
    return mean.float(), std.float()
