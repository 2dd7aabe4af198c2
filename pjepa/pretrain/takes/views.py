"""Views: what an epoch shows of a take, as pieces of this take or of others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pjepa.pretrain.takes.take import TrainingTake
from pjepa.streams.segments import token_offsets


@dataclass(frozen=True, eq=False)
class Piece:
    """Tokens [start, stop) of a take; `means` if they get the mean of another take."""

    take: TrainingTake
    start: int
    stop: int
    means: tuple[np.ndarray, np.ndarray] | None = None  # [d_in] of their own take and the other

    def __len__(self) -> int:
        return self.stop - self.start

    def features(self) -> np.ndarray:
        """Return features [n, d_in] as stored, without the shift."""
        return self.take.features[self.start : self.stop]

    def shift(self) -> np.ndarray:
        """Return what is added to the features [d_in]."""
        own, other = self.means or (np.zeros(self.take.features.shape[1]),) * 2
        return np.asarray(other - own, np.float32)


@dataclass(frozen=True, eq=False)
class TakeView:
    """What an epoch shows of a take: pieces of it, or what stands in for them."""

    take: TrainingTake
    pieces: tuple[Piece, ...]
    segment: np.ndarray  # [T] c(i), counted from 0 in what is shown (as in the release)
    offset: np.ndarray  # [T] r(i), the place in the segment, also when its beginning is cut off

    def __len__(self) -> int:
        return len(self.segment)

    def at(self, keep: np.ndarray) -> TakeView:
        """Return the view of the tokens `keep` only, in order."""
        sizes = [len(piece) for piece in self.pieces]
        owner = np.repeat(np.arange(len(sizes)), sizes)[keep]
        place = np.concatenate([np.arange(piece.start, piece.stop) for piece in self.pieces])[keep]
        ends = np.flatnonzero((np.diff(owner) != 0) | (np.diff(place) != 1)) + 1
        parts = (
            replace(self.pieces[owner[a]], start=int(place[a]), stop=int(place[b - 1]) + 1)
            for a, b in pairwise([0, *ends.tolist(), len(keep)])
        )
        shown = self.segment[keep]
        return TakeView(self.take, tuple(parts), shown - shown[0], self.offset[keep])


def whole(take: TrainingTake) -> TakeView:
    """Return the view of all of a take."""
    pieces = (Piece(take, 0, len(take.segment)),)
    return TakeView(take, pieces, take.segment, token_offsets(take.segment))


def exchanged(take: TrainingTake, pieces: tuple[Piece, ...]) -> TakeView:
    """Return the view of a take with `pieces` in place of its segments."""
    segment = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    return TakeView(take, pieces, segment, token_offsets(segment))
