"""Which tokens the models know: how far a video is from the training stream.

    d(video)^2 = mean over its tokens of (x - mu)' S^-1 (x - mu) / D

mu and S are mean and covariance of the training tokens, S shrunk towards a multiple of the identity
(oracle approximating shrinkage, Chen et al. 2010), so that a small stream can be inverted too. What
is far is for the training takes to say: each is measured by the statistics of the other groups, and
the largest of these distances is the limit. A new video like them is beyond it with probability
1 / (takes + 1) or so. No label is read.

Channels are correlated, and strange videos fall between the directions in which training tokens
spread while every single channel stays in its range: the covariance is what notices them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pjepa.core.text import natural
from pjepa.storage.reading import read_tensors
from pjepa.storage.writing import write_tensors
from pjepa.streams.stream import StreamReader

FILE = "familiar.safetensors"
FOLDS = 5  # of whole groups; each is measured by the others
MAX_TOKENS = 200_000  # tokens read, evenly spread: more would not move a covariance


@dataclass(frozen=True)
class Moments:
    """Sums over tokens: their number, x [D] and x x' [D, D]."""

    count: int
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, features: np.ndarray) -> Moments:
        """Return the sums of tokens [T, D]."""
        tokens = torch.from_numpy(features.astype(np.float64))
        return cls(len(tokens), tokens.sum(dim=0), tokens.T @ tokens)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.first + other.first, self.second + other.second
        )


@dataclass(frozen=True)
class Familiar:
    """Mean [D] and whitening [D, D] of the training tokens; the largest distance among them."""

    mean: Tensor
    whiten: Tensor
    limit: float
    takes: int

    @classmethod
    def fit(cls, moments: Moments, limit: float, takes: int) -> Familiar:
        """Return the statistics of the summed tokens; `whiten` W has W W' = S^-1."""
        mean = moments.first / moments.count
        spread = shrunk(moments.second / moments.count - mean.outer(mean), moments.count)
        values, axes = torch.linalg.eigh(spread)
        least = torch.finfo(values.dtype).eps * values[-1]  # below is rounding
        return cls(mean, axes * values.clamp_min(least).rsqrt(), limit, takes)

    def distance(self, tokens: np.ndarray) -> float:
        """Return how far a video's tokens [T, D] are, in standard deviations per channel."""
        apart = (torch.from_numpy(np.asarray(tokens, np.float64)) - self.mean) @ self.whiten
        return float(apart.square().mean().sqrt())

    def save(self, folder: Path) -> None:
        """Write the statistics beside the encoder."""
        limit = torch.tensor([self.limit, self.takes], dtype=torch.float64)
        tensors = {"mean": self.mean.float(), "whiten": self.whiten.float(), "limit": limit}
        write_tensors(folder / FILE, tensors)


def read_familiar(folder: Path) -> Familiar | None:
    """Return the statistics stored with an encoder; None if it has none."""
    if not (folder / FILE).is_file():
        return None
    tensors = read_tensors(folder / FILE, "mean", "whiten", "limit")
    limit, takes = tensors["limit"].tolist()
    return Familiar(tensors["mean"].double(), tensors["whiten"].double(), limit, int(takes))


def fit_familiar(stream: StreamReader, group_of: dict[str, str]) -> Familiar | None:
    """Return the statistics of the takes in `group_of`; None where one group is all there is."""
    takes = [take for take in stream.takes if take in group_of]
    groups = sorted({group_of[take] for take in takes}, key=natural)
    folds = min(FOLDS, len(groups))
    if folds < 2:
        return None
    fold_of = {take: groups.index(group_of[take]) % folds for take in takes}
    lengths = dict(zip(stream.takes, stream.lengths, strict=True))
    every = -(-sum(lengths[take] for take in takes) // MAX_TOKENS)
    none = Moments.of(np.zeros((0, stream.info.width)))
    sums = [none] * folds
    for take in stream.read_many(takes):
        fold = fold_of[take.take_id]
        sums[fold] = sums[fold] + Moments.of(take.features[::every])
    others = [
        Familiar.fit(sum((s for n, s in enumerate(sums) if n != fold), none), 0.0, 0)
        for fold in range(folds)
    ]
    distances = [
        others[fold_of[take.take_id]].distance(take.features[::every])
        for take in stream.read_many(takes)
    ]
    return Familiar.fit(sum(sums, none), max(distances), len(takes))


def shrunk(covariance: Tensor, count: int) -> Tensor:
    """Return (1 - r) S + r tr(S) / D I with the r of oracle approximating shrinkage."""
    width = len(covariance)
    trace, square = covariance.trace(), covariance.square().sum()
    spread = (count + 1 - 2 / width) * (square - trace**2 / width)
    share = ((1 - 2 / width) * square + trace**2) / spread.clamp_min(torch.finfo(spread.dtype).tiny)
    share = share.clamp(0.0, 1.0)
    level = (trace / width).clamp_min(torch.finfo(trace.dtype).tiny)
    return (1 - share) * covariance + share * level * torch.eye(width, dtype=covariance.dtype)
