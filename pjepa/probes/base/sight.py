"""How far into the future a probe's prediction can see."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import runs

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Sight:
    """What a token's prediction depends on: its past, and to the end of ...

    `token` itself, its `segment`, its `block` of fixed length (from token 0), the whole `take`.
    """

    to: Literal["token", "segment", "block", "take"]
    block: int = 1

    @property
    def whole_take(self) -> bool:
        return self.to == "take"

    def ends(self, segments: Index) -> Index:
        """Return for every token the end (exclusive) of what its prediction depends on."""
        count = len(segments)
        index = np.arange(count)
        if self.to == "take":
            return np.full(count, count)
        if self.to == "segment":
            starts, lengths = runs(segments)
            return np.repeat(starts + lengths, lengths)
        return np.minimum((index // self.block + 1) * self.block, count)

    def lookahead_s(self, segments: Index, times: NDArray[np.float64]) -> float:
        """Return the longest time from a token to the last token it depends on."""
        return seconds_ahead(self.ends(segments), times)


def seconds_ahead(ends: Index, times: NDArray[np.float64]) -> float:
    """Return the longest time from a token to the last one before its end."""
    return float((times[ends - 1] - times).max(initial=0.0))
