"""Steps without flicker: the most likely labels of a least length, averaged probabilities."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.runs import runs
from pjepa.live.labels import StepRuns
from pjepa.live.steps import Cleaning, cleaned_labels, lasting_labels, smoothed


def likely(scores, labels):
    return np.log(scores[np.arange(len(labels)), labels]).sum()


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(2, 3), st.integers(1, 5))
def test_no_labelling_without_short_steps_is_more_likely(seed, tokens, classes, least):
    scores = np.random.default_rng(seed).dirichlet(np.ones(classes), tokens)
    found = lasting_labels(scores, least)
    allowed = [
        likely(scores, np.array(labels))
        for labels in product(range(classes), repeat=tokens)
        if runs(np.array(labels))[1].min() >= min(least, tokens)
    ]
    assert runs(found)[1].min() >= min(least, tokens)
    assert likely(scores, found) == pytest.approx(max(allowed))


def test_smoothing_is_a_centred_mean_that_shortens_at_the_ends():
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 9)
    found = smoothed(scores, 3)
    np.testing.assert_allclose(found[4], scores[3:6].mean(axis=0))
    np.testing.assert_allclose(found[0], scores[:2].mean(axis=0))
    np.testing.assert_allclose(smoothed(scores, 100), np.tile(scores.mean(axis=0), (9, 1)))


def test_seconds_become_tokens_and_cuts_are_kept():
    scores = np.tile([0.9, 0.1], (12, 1))
    scores[5] = [0.2, 0.8]  # a flicker of one token
    scores[9:] = [0.1, 0.9]  # after a cut: a step of three
    as_scored = cleaned_labels(scores, 0.25, Cleaning(), (9,))
    assert as_scored.tolist() == [0] * 5 + [1] + [0] * 3 + [1] * 3
    for cleaning in (Cleaning(min_step_s=1.0), Cleaning(smooth_s=0.75)):
        labels = cleaned_labels(scores, 0.25, cleaning, (9,))
        assert labels.tolist() == [0] * 9 + [1] * 3


def test_a_probability_of_zero_forbids_nothing():
    scores = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert lasting_labels(scores, 3).tolist() == [0, 0, 0]


def test_a_jump_in_time_ends_a_step():
    runs = StepRuns(0.25)
    ended = [runs.push(t, 1, 0.5) for t in (0.0, 0.25, 2.0)]
    assert ended == [None, None, (0.0, 0.5, 1, 0.5)]
    assert runs.push(2.25, 2, 1.0) == (2.0, 2.25, 1, 0.5)
    assert runs.finish() == (2.25, 2.5, 2, 1.0)
