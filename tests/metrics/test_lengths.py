"""F1 by segment length: by hand, and equal to the pooled F1 when there is one bin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.metrics.lengths import length_bins, length_edges, take_hits
from pjepa.metrics.segmentation import segmentation_scores

LABELS = st.lists(st.integers(-1, 3), min_size=1, max_size=40)


def test_short_misses_cost_the_bin_of_short_segments() -> None:
    truth = np.array([1] * 8 + [2] * 2 + [1] * 8)
    prediction = np.array([1] * 8 + [3] * 2 + [1] * 8)
    hits = take_hits(truth, prediction, 0.5, None, 0.5)
    assert hits.true_s.tolist() == [4, 1, 4]
    assert hits.true_hit.tolist() == [True, False, True]
    short, long = length_bins([hits], np.array([0, 2, np.inf]))
    assert (short.true, short.predicted, short.f1) == (1, 1, 0)
    assert (long.true, long.recall, long.precision, long.f1) == (2, 100, 100, 100)


def test_only_the_first_segment_that_reaches_a_truth_counts() -> None:
    hits = take_hits(np.array([1] * 9), np.array([1, 1, 1, 0, 1, 1, 1, 0, 0]), 1.0, 0, 0.25)
    assert hits.predicted_hit.tolist() == [True, False]
    assert hits.true_hit.tolist() == [True]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LABELS, st.integers(0, 9)), min_size=1, max_size=4))
def test_one_bin_is_the_pooled_f1(takes: list[tuple[list[int], int]]) -> None:
    truths = [np.array(labels) for labels, _ in takes]
    guesses = [
        np.where(np.random.default_rng(seed).random(len(y)) < 0.7, np.maximum(y, 0), 1)
        for y, (_, seed) in zip(truths, takes, strict=True)
    ]
    pairs = list(zip(truths, guesses, strict=True))
    hits = [take_hits(y, p, 1.0, 0, 0.5) for y, p in pairs]
    (whole,) = length_bins(hits, np.array([0, np.inf]))
    if whole.true + whole.predicted:
        expected = segmentation_scores(truths, guesses, 0, "release")["f1_50"]
        assert whole.f1 == pytest.approx(expected)


def test_bins_hold_about_equally_many_segments() -> None:
    first, *inner, last = length_edges(np.arange(1.0, 101), 4)
    assert (first, last) == (0, np.inf)
    counts, _ = np.histogram(np.arange(1.0, 101), [first, *inner, 999])
    assert counts == pytest.approx(np.full(4, 25), abs=1)
    assert length_edges(np.ones(5), 4).tolist() == [0, np.inf]
    assert length_edges(np.zeros(0), 4).tolist() == [0, np.inf]
