"""Spans of time: a jump ends a run, and no span covers it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.core.runs import label_spans
from pjepa.probes.base.cell import segment_rows
from pjepa.probes.base.scoring import Prediction

STEP = 0.25


def test_a_gap_splits_a_run() -> None:
    times = np.array([0.0, 0.25, 0.5, 5.0, 5.25])
    prediction = Prediction(np.array([1, 1, 1, 1, 0]), np.full(5, 0.5, np.float32))
    assert segment_rows(prediction, times, STEP, ["idle", "pour"]) == [
        ["0.000", "0.750", "pour", "0.5000"],
        ["5.000", "5.250", "pour", "0.5000"],
        ["5.250", "5.500", "idle", "0.5000"],
    ]
    empty = Prediction(np.zeros(0, np.int64), np.zeros(0, np.float32))
    assert segment_rows(empty, np.zeros(0), STEP, []) == []


def test_uneven_tokens_are_no_gap() -> None:
    times = np.array([0.0, 0.2, 0.5, 0.7])  # the 4 tokens/s of 10 frames/s features
    spans = label_spans(np.array([2, 2, 2, 3]), times, STEP)
    assert spans.begin_s.tolist() == [0.0, 0.7]
    assert spans.until_s.tolist() == [0.7, 0.7 + STEP]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=40))
def test_spans_are_the_tokens_themselves(tokens: list[tuple[int, bool]]) -> None:
    steps = [STEP * (20 if gap else 1) for _, gap in tokens]
    times = np.cumsum(steps) - steps[0]
    labels = np.array([label for label, _ in tokens])
    spans = label_spans(labels, times, STEP)
    assert spans.first[0] == 0
    assert spans.end[-1] == len(labels)
    assert (spans.first[1:] == spans.end[:-1]).all()
    for label, first, end, begin, until in zip(
        spans.labels, spans.first, spans.end, spans.begin_s, spans.until_s, strict=True
    ):
        assert (labels[first:end] == label).all()
        assert np.isclose(until - begin, STEP * (end - first))
