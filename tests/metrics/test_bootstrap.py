"""The bootstrap draws groups, pairs them, and gives the same interval every time."""

import numpy as np
import pytest

from pjepa.metrics.bootstrap import FEWEST, Interval, Statistics, difference_intervals, intervals
from pjepa.metrics.segmentation import METRICS, segmentation_scores, take_statistics
from pjepa.ui.console import InputError


def noisy_takes(noise: float, count: int = 24, seed: int = 0) -> tuple[list, list]:
    random = np.random.default_rng(seed)
    truths = [np.repeat(random.integers(0, 5, 12), random.integers(3, 9, 12)) for _ in range(count)]
    draws = [np.random.default_rng(seed + 1 + i) for i in range(count)]
    predictions = [
        np.where(d.random(len(y)) < noise, d.integers(0, 5, len(y)), y)
        for d, y in zip(draws, truths, strict=True)
    ]
    return truths, predictions


def statistics(noise: float) -> Statistics:
    pairs = zip(*noisy_takes(noise), strict=True)
    return {f"t{i:02}": take_statistics(y, p, 0) for i, (y, p) in enumerate(pairs)}


GROUPS = {f"t{i:02}": f"g{i // 3}" for i in range(24)}


def test_mean_is_the_score_and_bounds_are_those_of_rescoring_the_drawn_takes() -> None:
    truths, predictions = noisy_takes(0.3)
    whole = segmentation_scores(truths, predictions, 0)
    found = intervals(statistics(0.3), GROUPS, 50, 7)
    for metric in METRICS:
        assert found[metric].mean == pytest.approx(whole[metric])
        assert found[metric].low <= found[metric].mean <= found[metric].high
    counts = np.random.default_rng(7).multinomial(8, np.full(8, 1 / 8), size=50)
    values = []
    for row in counts:
        drawn = [i for i in range(24) for _ in range(row[i // 3])]
        chosen = [truths[i] for i in drawn], [predictions[i] for i in drawn]
        values.append(segmentation_scores(*chosen, 0)["f1_25"])
    bounds = found["f1_25"].low, found["f1_25"].high
    assert bounds == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))
    assert intervals(statistics(0.3), GROUPS, 50, 8)["f1_25"] != found["f1_25"]


def test_paired_difference() -> None:
    good, bad = statistics(0.1), statistics(0.5)
    assert difference_intervals(good, good, GROUPS, 100, 0)["acc"].high == 0.0
    gain = difference_intervals(good, bad, GROUPS, 300, 0)["acc"]
    assert gain.low > 0
    assert gain.excludes_zero
    back = difference_intervals(bad, good, GROUPS, 300, 0)["acc"]
    assert (back.mean, back.high) == pytest.approx((-gain.mean, -gain.low))


def test_bad_input_is_one_line() -> None:
    stats = statistics(0.1)
    with pytest.raises(InputError, match="no takes"):
        intervals({}, GROUPS, 10, 0)
    with pytest.raises(InputError, match="no group"):
        intervals(stats, {}, 10, 0)
    with pytest.raises(InputError, match="different takes"):
        difference_intervals(stats, {"t00": stats["t00"]}, GROUPS, 10, 0)


def test_few_groups_are_never_sure() -> None:
    """Resamples of five groups or fewer are too much alike: nothing may rest on them."""
    for groups in (1, FEWEST - 1, FEWEST, 100):
        gain = Interval(5.0, 4.0, 6.0, groups)
        assert gain.holds == gain.above_zero == gain.excludes_zero == (groups >= FEWEST)
        assert not Interval(-5.0, -6.0, -4.0, groups).above_zero
