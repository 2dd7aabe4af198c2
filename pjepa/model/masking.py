"""Which tokens are hidden: the target set M of a take (paper Sec. 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pjepa.ui.transfer import sent


@dataclass(frozen=True, eq=False)
class MaskRows:
    """C and M of a packed batch as indices, made once and best on the CPU: no GPU has to wait."""

    visible: Tensor  # [C] long
    hidden: Tensor  # [M] long
    lengths: tuple[int, ...]  # visible tokens of every take

    def to(self, device: torch.device | str) -> MaskRows:
        """Return the same rows on another device."""
        return MaskRows(sent(self.visible, device), sent(self.hidden, device), self.lengths)


def rows_of(target: Tensor, take_lengths: tuple[int, ...]) -> MaskRows:
    """Return the rows of M (bool [N])."""
    parts = torch.split(target, list(take_lengths))
    lengths = tuple(len(part) - int(part.sum()) for part in parts)
    return MaskRows((~target).nonzero()[:, 0], target.nonzero()[:, 0], lengths)


def target_count(tokens: int, ratio: float) -> int:
    """Return k = round(p_m n), at least one target and one context token."""
    return int(np.clip(round(ratio * tokens), 1, tokens - 1))


def uniform_targets(tokens: int, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return M as bool [T]: a uniformly random subset of the take's tokens (the paper's)."""
    target = np.zeros(tokens, bool)
    target[rng.permutation(tokens)[: target_count(tokens, ratio)]] = True
    return target


def segment_targets(segment: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return M as bool [T]: whole segments at random until k tokens are hidden; one stays.

    Unlike the paper: a hidden step can then not be read off its own visible tokens. The segment
    that would overshoot k is hidden only if that comes closer to k. A take of one segment is
    masked by tokens.
    """
    sizes = np.bincount(segment - segment.min())
    segments = np.flatnonzero(sizes)
    if len(segments) < 2:
        return uniform_targets(len(segment), ratio, rng)
    wanted, hidden = target_count(len(segment), ratio), 0
    chosen: list[int] = []
    for place in rng.permutation(segments)[:-1]:
        over = hidden + sizes[place] - wanted
        if chosen and over > 0 and over >= wanted - hidden:
            break
        chosen.append(place)
        hidden += sizes[place]
        if over >= 0:
            break
    return np.isin(segment - segment.min(), chosen)


def targets(kind: str, segment: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return M of one take by `pjepa.masking`: `tokens` or `segments`."""
    if kind == "segments":
        return segment_targets(segment, ratio, rng)
    return uniform_targets(len(segment), ratio, rng)
