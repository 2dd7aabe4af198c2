"""Segments exchanged between takes, so that no take can be memorised.

An epoch shows, in place of a segment, one of the `NEAREST` segments of other takes with probability
p (`pjepa.exchange`). Nearest are those whose mean tokens, in units of the training tokens' spread,
are closest. The order of the steps stays; how they look changes from epoch to epoch. Where
`input_norm` removes what is constant in a take (its camera, its light), takes are compared without
their means, and lent tokens get the mean of the take they come to.

Not in the paper. A few dozen takes can be memorised, above all what comes next in each; a probe
fitted on features of such takes then meets others on new takes. No label enters, and segments are
those the encoder's attention and positions use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pjepa.core.runs import segment_means
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import Piece, TrainingTake, segments_of

NEAREST = 5  # segments of other takes among which one is drawn
EXCHANGE = 3  # what a random stream is for, beside those of `data`
ROWS = 256  # segments compared with all others at a time


class Exchange:
    """The segments of all training takes, and for each those that may stand in for it."""

    def __init__(self, takes: Sequence[TrainingTake], std: Tensor, config: PjepaConfig) -> None:
        self.share, self.seed = config.exchange, config.seed
        self.segments = {take.number: segments_of(take) for take in takes}
        self.pieces = [piece for pieces in self.segments.values() for piece in pieces]
        self.centre: dict[int, np.ndarray] | None = None  # mean token [D] of takes, if removed
        if config.centres_takes():
            self.centre = {t.number: t.features.mean(axis=0, dtype=np.float64) for t in takes}
        nearest = self._nearest(takes, std.cpu().numpy(), config.device)
        ends = np.cumsum([len(pieces) for pieces in self.segments.values()])
        self.nearest = dict(zip(self.segments, np.split(nearest, ends[:-1]), strict=True))

    def pieces_of(self, take: TrainingTake, epoch: int) -> list[Piece]:
        """Return what an epoch shows in place of a take, a piece for every segment."""
        own, nearest = self.segments[take.number], self.nearest[take.number]  # [segments, k]
        rng = np.random.default_rng([self.seed, EXCHANGE, epoch, take.number])
        chances, choices = rng.random((2, len(own)))
        count = nearest.shape[1]  # 0: there is no other take
        return [
            self._lent(near[int(choice * count)], take) if count and chance < self.share else piece
            for piece, near, chance, choice in zip(own, nearest, chances, choices, strict=True)
        ]

    def _lent(self, number: int, borrower: TrainingTake) -> Piece:
        """Return a segment as it stands in another take."""
        piece = self.pieces[number]
        if self.centre is None:
            return piece
        shift = self.centre[borrower.number] - self.centre[piece.take.number]
        return replace(piece, shift=shift.astype(np.float32))

    def _nearest(self, takes: Sequence[TrainingTake], std: np.ndarray, device: str) -> np.ndarray:
        """Return the nearest segments of other takes for every one [S, k], by number in `pieces`.

        k is NEAREST, or what other takes have.
        """
        means = []
        for take in takes:
            centre = 0.0 if self.centre is None else self.centre[take.number]
            means.append((segment_means(take.features, take.segment) - centre) / std)
        points = torch.from_numpy(np.concatenate(means).astype(np.float32)).to(device)  # [S, D]
        owner = torch.tensor([piece.take.number for piece in self.pieces], device=device)
        others = len(owner) - int(torch.unique(owner, return_counts=True)[1].max())
        nearest = []
        for rows, mine in zip(points.split(ROWS), owner.split(ROWS), strict=True):
            distance = torch.cdist(rows, points)
            distance[mine[:, None] == owner] = torch.inf
            nearest.append(distance.topk(min(NEAREST, others), largest=False).indices)
        return torch.cat(nearest).cpu().numpy()
