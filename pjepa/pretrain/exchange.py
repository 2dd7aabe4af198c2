"""Segments exchanged between takes, so that no take can be learned by heart.

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

from pjepa.core.runs import runs
from pjepa.pretrain.data import Piece, TrainingTake, token_statistics

NEAREST = 5  # segments of other takes among which one is drawn
EXCHANGE = 3  # what a random stream is for, beside those of `data`
ROWS = 256  # segments compared with all others at a time


class Exchange:
    """The segments of all training takes, and for each those that may stand in for it."""

    def __init__(
        self,
        takes: Sequence[TrainingTake],
        share: float,
        seed: int,
        centred: bool,
        device: str = "cpu",  # where segments are compared
    ) -> None:
        self.share, self.seed = share, seed
        self.segments = {take.number: _segments(take) for take in takes}
        self.pieces = [piece for found in self.segments.values() for piece in found]
        ends = np.cumsum([len(found) for found in self.segments.values()])
        self.first = dict(zip(self.segments, [0, *ends.tolist()], strict=False))
        self.centre = {take.number: _mean(take.features) for take in takes} if centred else None
        self.nearest = self._nearest(token_statistics(takes)[1], device)

    def pieces_of(self, take: TrainingTake, epoch: int) -> tuple[Piece, ...]:
        """Return what an epoch shows in place of a take, a piece for every segment."""
        own, first = self.segments[take.number], self.first[take.number]
        rng = np.random.default_rng([self.seed, EXCHANGE, epoch, take.number])
        asked, drawn = rng.random((2, len(own)))
        choices = self.nearest[first : first + len(own)]  # [segments, k]
        count = choices.shape[1]  # 0: there is no other take
        return tuple(
            self._lent(near[int(which * count)], take) if count and ask < self.share else piece
            for piece, near, ask, which in zip(own, choices, asked, drawn, strict=True)
        )

    def _lent(self, place: int, borrower: TrainingTake) -> Piece:
        """Return a segment as it stands in another take."""
        piece = self.pieces[place]
        if self.centre is None:
            return piece
        means = self.centre[piece.take.number], self.centre[borrower.number]
        return replace(piece, means=means)

    def _nearest(self, spread: np.ndarray, device: str) -> np.ndarray:
        """Return the nearest segments of other takes for every one [S, k], as places in `pieces`.

        k is NEAREST, or what other takes have.
        """
        means = np.empty((len(self.pieces), len(spread)), np.float32)  # [S, D]
        for row, piece in zip(means, self.pieces, strict=True):
            centre = 0.0 if self.centre is None else self.centre[piece.take.number]
            row[:] = (_mean(piece.features()) - centre) / spread
        points = torch.from_numpy(means).to(device)
        owner = torch.tensor([piece.take.number for piece in self.pieces], device=device)
        others = len(owner) - int(torch.unique(owner, return_counts=True)[1].max())
        found = []
        for rows, mine in zip(points.split(ROWS), owner.split(ROWS), strict=True):
            distance = torch.cdist(rows, points)
            distance[mine[:, None] == owner] = torch.inf
            found.append(distance.topk(min(NEAREST, others), largest=False).indices)
        return torch.cat(found).cpu().numpy()


def _mean(features: np.ndarray) -> np.ndarray:
    """Return the mean token [D] of features [n, D]."""
    return np.asarray(features.mean(axis=0, dtype=np.float64))


def _segments(take: TrainingTake) -> list[Piece]:
    starts, lengths = runs(take.segment)
    return [Piece(take, a, a + n) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
