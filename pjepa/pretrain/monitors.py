"""Is the representation collapsing? What a practitioner watches beside the loss."""

from __future__ import annotations

import torch
from torch import Tensor

LOW_STD = 0.05  # of a final LayerNorm whose channels have unit spread
LOW_RANK = 2.0
FEWEST = 32  # tokens that tell a collapse from chance


def target_std(targets: Tensor) -> float:
    """Return the spread of targets over tokens, mean over channels; 0: all tokens alike."""
    return 0.0 if len(targets) < 2 else float(targets.float().std(dim=0).mean())


def effective_rank(targets: Tensor) -> float:
    """Return exp(entropy of the normalised singular values): directions really used.

    They are the roots of the Gram matrix's eigenvalues, several times cheaper on long tables.
    """
    centred = targets.double() - targets.double().mean(dim=0)
    rows, width = centred.shape
    gram = centred.T @ centred if rows >= width else centred @ centred.T
    values = torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt()
    share = values / values.sum().clamp_min(1e-12)
    return float(torch.exp(-(share * share.clamp_min(1e-12).log()).sum()))


def collapse_warning(std: float, rank: float) -> str | None:
    """Return a warning when the targets have collapsed, else None."""
    if std >= LOW_STD and rank >= LOW_RANK:
        return None
    return (
        f"the targets are collapsing (std {std:.3f}, effective rank {rank:.1f}): "
        "lower pjepa.lr, raise pjepa.ema or set pjepa.target_norm=layer"
    )
