import numpy as np
import pytest

from pjepa.features.config import ControlsConfig
from pjepa.features.controls import CONTROLS, control_info
from pjepa.streams.provenance import Provenance, StreamInfo
from tests.features.worlds import FPS, take_of

CONFIG = ControlsConfig(smooth_s=1.0)
LENGTHS = (3, 5, 2, 4)


@pytest.fixture
def take():
    return take_of(np.repeat([0, 1, -1, 2], LENGTHS))


def control(name, take):
    return CONTROLS[name](take, CONFIG, FPS)


def test_smooth_is_the_mean_of_the_recent_past(take):
    expected = [take.features[max(0, i - 3) : i + 1].mean(axis=0) for i in range(14)]
    np.testing.assert_allclose(control("smooth", take), expected, atol=1e-6)


def test_segment_mean_and_history(take):
    spans = np.split(np.arange(14), np.cumsum(LENGTHS)[:-1])
    means = [take.features[span].mean(axis=0) for span in spans]
    zero = np.zeros_like(means[0])
    for number, span in enumerate(spans):
        past = np.mean(means[:number], axis=0) if number else zero
        last_two = [means[number - n] if number >= n else zero for n in (1, 2)]
        expected = np.concatenate([means[number], past, *last_two])
        for row in control("history", take)[span]:
            np.testing.assert_allclose(row, expected, atol=1e-6)
        np.testing.assert_allclose(control("segment_mean", take)[span][0], means[number], atol=1e-6)


def test_time_knows_position_and_nothing_else(take):
    other = take.with_features(np.zeros_like(take.features))
    rows = control("time", take)
    np.testing.assert_array_equal(rows, control("time", other))
    assert rows[:, :50].argmax(axis=1)[-1] == 46  # 13 of 14 tokens, in 50 bins
    assert (rows[:, : 50 + 64].sum(axis=1) == 2).all()


def provenance(name, **upstream):
    stream = StreamInfo(source="x", fps=FPS, width=3, provenance=Provenance(**upstream))
    return control_info(name, stream, 3, 5.0).provenance


def test_provenance_tells_privilege_and_labels():
    assert provenance("smooth", lookahead_s=2.0) == Provenance(lookahead_s=2.0)
    history = provenance("history", lookahead_s=2.0)
    assert (history.boundaries_test, history.lookahead_s) == ("annotated", 7.0)
    assert provenance("history", lookahead_s=2.0, inside_segments=True).lookahead_s == 5.0
    upstream = {"train_labels": True, "label_folds": 3, "selection_labels": "holdout"}
    assert provenance("raw", **upstream) == Provenance(**upstream)
    assert provenance("history", **upstream).train_labels
    time = provenance("time", **upstream)  # position alone used no labels, but the take's end
    assert time.whole_take
    assert (time.train_labels, time.label_folds, time.selection_labels) == (False, 0, "none")
