"""Forecast of the next segment and surprise at the current one, from the neighbour heads.

    forecast of what follows segment s   h_s = mean_{i in s} H_{+1} z_i        [d_in]
    surprise at segment s                u_s = d(m_s - h_{s-1})

m_s is the mean normalised token of segment s, as in `pjepa/model/neighbours.py`, and d the
distance of `pjepa/model/forecast.py`. Both are known when s has ended, and need nothing that
comes later. The first segment has no forecast: u_0 = 0.

    forecaster = Forecaster.from_pretrained("models/pjepa")
    found = forecaster.forecast(tokens, segment_lengths)
    stream = forecaster.stream()
    for segment in segments: found = stream.push(segment)       # the same numbers, one by one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import HEADS, NeighbourHeads
from pjepa.model.segments import SegmentRule
from pjepa.model.stream import EncoderStream
from pjepa.storage.saver import State, numbers
from pjepa.ui.console import InputError

# How far a segment lies from what was expected, in units of how much segments differ.

SHRINK = 0.3  # 0.1 to 1 find order errors equally well in the demo's worlds 5 and 6


def whitening(spread: Tensor) -> Tensor:
    """Return the lower factor L [D, D] of the regularised S = `spread`."""
    size = len(spread)
    level = (spread.trace() / size).clamp(min=1e-6)
    return torch.linalg.cholesky(spread + SHRINK * level * torch.eye(size).to(spread))


def distance(error: Tensor, factor: Tensor) -> Tensor:
    """Return d(e) [n] of errors [n, D]; `factor` is what `whitening` returned."""
    unit = torch.linalg.solve_triangular(factor, error.mT, upper=False)  # [D, n]
    return unit.square().mean(dim=0)


NEXT = 1


@dataclass(frozen=True)
class SegmentForecast:
    """Forecasts and surprises of S segments, in order."""

    forecast: Tensor  # [S, d_in] h_s, in units of normalised tokens
    surprise: Tensor  # [S] u_s

    def columns(self, segment: np.ndarray) -> np.ndarray:
        """Return forecast and surprise of its segment c(i) for every token [T, d_in + 1]."""
        rows = torch.cat([self.forecast, self.surprise[:, None]], dim=1).cpu().numpy()
        return rows[segment]


def can_forecast(folder: Path) -> bool:
    """Return whether an encoder's folder holds heads that forecast the next segment."""
    return (folder / HEADS).exists() and NEXT in NeighbourHeads.load(folder).places


class Forecaster:
    """An encoder with the heads that were trained beside it."""

    def __init__(self, encoder: ProcedureEncoder, heads: NeighbourHeads) -> None:
        if NEXT not in heads.places:
            raise InputError(
                f"these heads predict the segments {list(heads.places)}; a forecast needs 1, the "
                "next one: pretrain with it in pjepa.neighbours"
            )
        self.encoder, self.heads = encoder, heads
        self.factor = whitening(heads.spread)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "cpu") -> Forecaster:
        """Load an encoder's folder that holds the heads too."""
        encoder = ProcedureEncoder.from_pretrained(folder, device)
        return cls(encoder, NeighbourHeads.load(Path(folder), device))

    @torch.inference_mode()
    def forecast(
        self,
        tokens: np.ndarray | Tensor,
        segment_lengths: Sequence[int] | None = None,
        *,
        segment: np.ndarray | None = None,
        features: Tensor | None = None,
    ) -> SegmentForecast:
        """Return forecast and surprise of one take's segments; arguments as of `encode`.

        `features` [T, d] are what the encoder made of the tokens, if it has.
        """
        x, layout = self.encoder.take(tokens, segment_lengths, segment)
        normal = self.encoder.normalised(x, layout)
        if features is None:
            features = self.encoder.contextualised(normal, layout)
        lengths = torch.bincount(layout.segment).tolist()
        pairs = zip(torch.split(features, lengths), torch.split(normal, lengths), strict=True)
        ends = [self.segment_end(z.sum(dim=0), n.sum(dim=0), len(z)) for z, n in pairs]
        return self._from_ends(ends, None)

    tell = forecast  # its old name, for one more version

    def segment_end(self, features: Tensor, normal: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return (h_s, m_s) of a segment from the sums [d], [d_in] over its `count` tokens.

        H is linear, so it is applied once, to the mean feature.
        """
        return self.heads(features[None] / count, NEXT)[0], normal / count

    def _from_ends(
        self, ends: Sequence[tuple[Tensor, Tensor]], before: Tensor | None
    ) -> SegmentForecast:
        """Return what (h_s, m_s) of consecutive segments give with the h before them."""
        if not ends:
            none = self.encoder.mean.new_zeros(0, self.encoder.config.d_in)
            return SegmentForecast(none, none[:, 0])
        forecast, means = (torch.stack(rows) for rows in zip(*ends, strict=True))
        first = means[:1] if before is None else before[None]  # no forecast, no error
        expected = torch.cat([first, forecast[:-1]])
        return SegmentForecast(forecast, distance(means - expected, self.factor))

    def stream(self, segments: SegmentRule | None = None) -> ForecastStream:
        """Return a stream that gives the same for an ongoing take."""
        return ForecastStream(self, self.encoder.stream(segments=segments))


class ForecastStream:
    """An ongoing take: `push` returns the segments that ended.

    A segment has ended for good when a token of a later one is final, or when the rule of the
    encoder's stream said so. Whoever pushes to that stream calls `ended` instead of `push`.
    """

    def __init__(self, forecaster: Forecaster, encoded: EncoderStream) -> None:
        self.forecaster, self.encoded = forecaster, encoded
        self.before: Tensor | None = None  # h of the last segment that ended
        self.segment, self.count = 0, 0  # the one that has not, and
        self.sums: tuple[Tensor, Tensor] | None = None  # its features and normalised tokens

    def push(self, tokens: np.ndarray | Tensor, ends: bool | None = None) -> SegmentForecast:
        """Return forecast and surprise of the segments that ended with these tokens [n, d_in]."""
        return self.ended(self.encoded.push(tokens, ends))

    def finish(self) -> SegmentForecast:
        """End the take; return forecast and surprise of the segments that were still open."""
        return self.ended(self.encoded.finish())

    @torch.inference_mode()
    def ended(self, features: Tensor) -> SegmentForecast:
        """Return the segments that ended with these features, which the stream returned last."""
        ends, segments = [], torch.from_numpy(self.encoded.newest)
        for segment in range(self.segment, self.encoded.segments.segment + 1):
            own = segments == segment
            self._add(features[own], self.encoded.newest_inputs[own])
            still_open = segment == self.encoded.segments.segment
            waits = bool((self.encoded.waiting_segments == segment).any())
            if still_open or waits or self.sums is None:
                break
            ends.append(self.forecaster.segment_end(*self.sums, self.count))
            self.segment, self.count, self.sums = segment + 1, 0, None
        forecast = self.forecaster._from_ends(ends, self.before)
        if ends:
            self.before = ends[-1][0]
        return forecast

    def state(self) -> State:
        """Return the last forecast, and the sums over the segment that goes on."""
        state = {"segment": numbers(self.segment, self.count)}
        if self.before is not None:
            state["before"] = self.before
        if self.sums is not None:
            state["features"], state["normal"] = self.sums
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        device = self.forecaster.encoder.mean.device
        self.segment, self.count = (int(n) for n in state["segment"].tolist())
        if "before" in state:
            self.before = state["before"].to(device)
        if "features" in state:
            self.sums = state["features"].to(device), state["normal"].to(device)

    def _add(self, features: Tensor, normal: Tensor) -> None:
        if not len(features):
            return
        sums, before = (features.sum(dim=0), normal.sum(dim=0)), self.sums
        self.sums = sums if before is None else (before[0] + sums[0], before[1] + sums[1])
        self.count += len(features)
