"""The paired group bootstrap: how far a score could move on other recordings.

Whole groups (recordings or participants) are drawn with replacement, never takes, because takes
of one group are not independent. A resample is a weight per take, so segments are matched once
and all resamples are one matrix product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pjepa.metrics.segmentation import TakeStatistics, Values, scores
from pjepa.ui.console import InputError

Statistics = Mapping[str, TakeStatistics]  # by take id
PERCENTILES = (2.5, 97.5)
FEWEST = 6  # groups; resamples of fewer are too much alike for a 95 % interval


@dataclass(frozen=True)
class Interval:
    """The value on all takes, and the 95 % percentile interval of its resamples.

    With too few groups there is no interval: none is shown, and nothing counts as certain.
    """

    mean: float
    low: float
    high: float
    groups: int = FEWEST  # that were resampled

    @property
    def holds(self) -> bool:
        """Return whether enough groups were resampled for a 95 % interval."""
        return self.groups >= FEWEST

    @property
    def above_zero(self) -> bool:
        """Return whether the whole interval is above 0 (of a difference: a significant gain)."""
        return self.holds and self.low > 0

    @property
    def excludes_zero(self) -> bool:
        """Return whether 0 lies outside (of a difference: it is significant)."""
        return self.holds and (self.low > 0 or self.high < 0)


def intervals(
    stats: Statistics | Sequence[Statistics],
    groups: Mapping[str, str],
    resamples: int,
    seed: int,
    convention: str = "release",
) -> dict[str, Interval]:
    """Return the interval of every metric, all on the same resamples."""
    (means,), count = _resampled([stats], groups, resamples, seed, convention)
    return {name: resampled_interval(values, count) for name, values in means.items()}


def difference_intervals(
    a: Statistics | Sequence[Statistics],
    b: Statistics | Sequence[Statistics],
    groups: Mapping[str, str],
    resamples: int,
    seed: int,
    convention: str = "release",
) -> dict[str, Interval]:
    """Return the interval of a - b for every metric that both have."""
    (ours, theirs), count = _resampled([a, b], groups, resamples, seed, convention)
    return {
        name: resampled_interval(ours[name] - theirs[name], count)
        for name in ours
        if name in theirs
    }


def _resampled(
    sides: Sequence[Statistics | Sequence[Statistics]],
    groups: Mapping[str, str],
    resamples: int,
    seed: int,
    convention: str,
) -> tuple[list[dict[str, Values]], int]:
    """Return every metric of each side per resample, and how many groups there are."""
    variants = [[side] if isinstance(side, Mapping) else list(side) for side in sides]
    takes = _common_takes([one for side in variants for one in side], groups)
    of_takes = [groups[take] for take in takes]
    weights = group_weights(of_takes, resamples, seed)
    return [_means(side, takes, convention, weights) for side in variants], len({*of_takes})


def median_interval(
    values: Mapping[str, float], groups: Mapping[str, str], resamples: int, seed: int
) -> Interval | None:
    """Return the median over takes and its interval; NaN values are left out, None if all are."""
    takes = sorted(take for take, value in values.items() if not np.isnan(value))
    if not takes:
        return None
    weights = group_weights([groups[take] for take in takes], resamples, seed)
    medians = _weighted_medians(np.array([values[take] for take in takes]), weights)
    return resampled_interval(medians, len({groups[take] for take in takes}))


def _weighted_medians(values: Values, weights: Values) -> Values:
    """Return the median of values [takes] under each row of whole weights [..., takes].

    The mean of the two middle values, as if every take occurred as often as its weight.
    """
    order = np.argsort(values, kind="stable")
    ranked, reached = values[order], np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    lower = (reached >= (total // 2 + total % 2)).argmax(1)  # the middle one, or the first of two
    upper = (reached >= total // 2 + 1).argmax(1)
    middle: Values = (ranked[lower] + ranked[upper]) / 2
    return middle


def _common_takes(variants: Sequence[Statistics], groups: Mapping[str, str]) -> list[str]:
    """Return the sorted take ids, which every variant must share."""
    takes = sorted(variants[0]) if variants else []
    if not takes:
        raise InputError("bootstrap: no takes to resample")
    for other in variants[1:]:
        if sorted(other) != takes:
            raise InputError("bootstrap: the two results were scored on different takes")
    missing = [take for take in takes if take not in groups]
    if missing:
        raise InputError(f"bootstrap: take {missing[0]!r} has no group in the takes table")
    return takes


def group_weights(groups: Sequence[str], resamples: int, seed: int) -> Values:
    """Return weights `[1 + resamples, takes]`; the first row is the sample itself."""
    names, of_take = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    uniform = np.full(len(names), 1.0 / len(names))
    counts = np.random.default_rng(seed).multinomial(len(names), uniform, size=resamples)
    drawn = counts[:, of_take].astype(np.float64)
    return np.concatenate([np.ones((1, len(groups))), drawn])


def _means(
    variants: Sequence[Statistics], takes: Sequence[str], convention: str, weights: Values
) -> dict[str, Values]:
    """Return every metric per row of weights, averaged over variants."""
    rows = [scores([variant[take] for take in takes], convention, weights) for variant in variants]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: np.mean([row[name] for row in rows], axis=0, dtype=np.float64) for name in names}


def resampled_interval(values: Values, groups: int) -> Interval:
    """Return the interval of values [1 + resamples], the sample first, over so many groups."""
    low, high = np.percentile(values[1:], PERCENTILES)
    return Interval(float(values[0]), float(low), float(high), groups)
