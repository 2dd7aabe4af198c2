"""Is the representation collapsing? What a practitioner watches beside the loss."""

from __future__ import annotations

import torch
from torch import Tensor

LOW_STD = 0.05  # of a final LayerNorm whose channels have unit spread
LOW_RANK = 2.0


def target_std(targets: Tensor) -> float:
    """Spread of the targets over tokens, mean over channels; 0 when all tokens look the same."""
    return float(targets.float().std(dim=0).mean())


def effective_rank(targets: Tensor) -> float:
    """exp(entropy of the normalised singular values): how many directions are really used."""
    centred = targets.float() - targets.float().mean(dim=0)
    values = torch.linalg.svdvals(centred)
    share = values / values.sum().clamp_min(1e-12)
    return float(torch.exp(-(share * share.clamp_min(1e-12).log()).sum()))


def collapse_warning(std: float, rank: float) -> str | None:
    """A sentence when the targets carry next to nothing any more."""
    if std >= LOW_STD and rank >= LOW_RANK:
        return None
    return (
        f"the targets are collapsing (std {std:.3f}, effective rank {rank:.1f}): "
        "lower pjepa.lr, raise pjepa.ema or set pjepa.target_norm=layer"
    )
