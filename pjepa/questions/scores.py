"""Ratios over takes with paired intervals over groups: percent right, or a mean error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pjepa.metrics.bootstrap import PERCENTILES, Interval, group_weights


@dataclass(frozen=True)
class Tally:
    """One answer's sum and count on every take, in the order of the reported takes."""

    total: np.ndarray  # [takes]
    count: np.ndarray  # [takes]

    def under(self, weights: np.ndarray) -> np.ndarray:
        """Return 100 x sum / count for every row of weights [R, takes]."""
        ratio: np.ndarray = 100 * (weights @ self.total) / np.maximum(weights @ self.count, 1)
        return ratio


def pooled(parts: Sequence[Tally]) -> Tally:
    """Return all parts together."""
    return Tally(np.sum([p.total for p in parts], 0), np.sum([p.count for p in parts], 0))


def table(
    found: Mapping[str, Tally], against: Sequence[str], groups: Sequence[str], resamples: int
) -> dict[str, dict[str, Interval]]:
    """Return every row's value and its differences from the rows `against`, with intervals."""
    weights = group_weights(groups, resamples, 0)
    values = {name: tally.under(weights) for name, tally in found.items()}
    return {
        name: {"value": _interval(value, groups)}
        | {f"- {rest}": _interval(value - values[rest], groups) for rest in against if rest != name}
        for name, value in values.items()
    }


def _interval(values: np.ndarray, groups: Sequence[str]) -> Interval:
    low, high = np.percentile(values[1:], PERCENTILES)
    return Interval(float(values[0]), float(low), float(high), len(set(groups)))
