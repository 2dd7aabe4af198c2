"""Whole segments classified: by the mean of their tokens' probabilities, known ones only."""

from dataclasses import asdict

import numpy as np
import pytest

from pjepa.metrics.bootstrap import difference_intervals, intervals
from pjepa.metrics.segmentation import (
    METRICS,
    TakeStatistics,
    clip_counts,
    scores,
    take_statistics,
)

PROBABILITY = np.array(
    [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.4, 0.6, 0], [0, 0.2, 0.8], [0, 1, 0], [0, 0, 1]], np.float32
)


def test_the_mean_decides_not_the_majority() -> None:
    labels, segments = np.array([0, 0, 0, 2, 1, 1]), np.array([0, 0, 0, 1, 1, 2])
    # Segment 1 holds two labels: a clip each. Right: 0 (mean 0.57), 2 and the first 1.
    assert clip_counts(labels, PROBABILITY, segments) == (4, 3)


def test_unknown_and_background_clips_do_not_count() -> None:
    labels, segments = np.array([0, 0, -1, -1, 1, 2]), np.array([0, 0, 1, 1, 2, 3])
    assert clip_counts(labels, PROBABILITY, segments, background=0)[0] == 2
    assert clip_counts(labels, PROBABILITY, segments)[0] == 3
    nothing = clip_counts(np.zeros(0, int), np.zeros((0, 3), np.float32), np.zeros(0, int))
    assert nothing == (0, 0)
    same = np.ones(6, int)  # equal neighbours are two clips if segments say so
    assert clip_counts(same, PROBABILITY, np.array([0, 0, 0, 1, 1, 1]))[0] == 2
    assert clip_counts(same, PROBABILITY, np.full(6, -1))[0] == 1


def some_takes(count: int = 12, clips: bool = True) -> dict[str, TakeStatistics]:
    random = np.random.default_rng(0)
    found = {}
    for number in range(count):
        truth = np.repeat(random.integers(-1, 5, 8), 4)
        guess = np.where(random.random(32) < 0.6, truth, random.integers(0, 5, 32))
        row = asdict(take_statistics(truth, guess, 0))
        extra = {"clips": 7.0, "clips_correct": float(number % 8)} if clips else {}
        found[f"t{number}"] = TakeStatistics.from_dict(row | extra)
    return found


def test_top1_appears_only_where_clips_were_counted() -> None:
    with_clips, without = some_takes(), some_takes(clips=False)
    assert "top1" not in scores(list(without.values()))
    expected = 100 * sum(number % 8 for number in range(12)) / (12 * 7)
    assert float(scores(list(with_clips.values()))["top1"]) == pytest.approx(expected)
    groups = {take: take for take in with_clips}
    assert set(intervals(with_clips, groups, 20, 0)) == {*METRICS, "top1"}
    assert set(difference_intervals(with_clips, without, groups, 20, 0)) == set(METRICS)


def loop_macro_f1(pairs: list[tuple[np.ndarray, np.ndarray]], classes: set[int]) -> float:
    truth, guess = (np.concatenate(side) for side in zip(*pairs, strict=True))
    truth, guess = truth[truth >= 0], guess[truth >= 0]
    found = []
    for label in classes:
        hits = ((truth == label) & (guess == label)).sum()
        found.append(200 * hits / ((truth == label).sum() + (guess == label).sum()))
    return float(np.mean(found))


def test_macro_f1_is_that_of_the_summed_confusions() -> None:
    random = np.random.default_rng(1)
    pairs = [(random.integers(-1, 5, 40), random.integers(0, 6, 40)) for _ in range(5)]
    for background in (None, 0):
        takes = [take_statistics(y, p, background) for y, p in pairs]
        clipped = [take_statistics(y, np.where(p < 5, p, -1), background) for y, p in pairs]
        expected = loop_macro_f1(pairs, {0, 1, 2, 3, 4} - {background})
        assert float(scores(clipped)["macro_f1"]) == pytest.approx(expected)
    per_take = [float(scores([take])["macro_f1"]) for take in takes]
    assert float(scores(takes, "ltcontext")["macro_f1"]) == pytest.approx(np.mean(per_take))
