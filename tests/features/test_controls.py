import numpy as np
import pytest

from pjepa.core.runs import token_offsets
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import CONTROLS, control_provenance
from pjepa.streams.provenance import Provenance
from pjepa.streams.stream import Take

CONFIG = ControlsConfig(smooth_s=1.0)


@pytest.fixture
def take():
    segment = np.repeat([0, 1, -1, 2], [3, 5, 2, 4]).astype(np.int32)
    features = np.random.default_rng(0).normal(size=(14, 3)).astype(np.float32)
    return Take("x", features, np.arange(14) / 4, segment, token_offsets(segment))


def test_smooth_is_the_mean_of_the_recent_past(take):
    found = CONTROLS["smooth"](take, CONFIG, 4.0)
    expected = [take.features[max(0, i - 3) : i + 1].mean(axis=0) for i in range(14)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_segment_mean_and_history(take):
    spans = [slice(0, 3), slice(3, 8), slice(8, 10), slice(10, 14)]
    means = [take.features[s].mean(axis=0) for s in spans]
    found = CONTROLS["history"](take, CONFIG, 4.0)
    zero = np.zeros(3)
    for number, span in enumerate(spans):
        past = np.mean(means[:number], axis=0) if number else zero
        one = means[number - 1] if number > 0 else zero
        two = means[number - 2] if number > 1 else zero
        expected = np.concatenate([means[number], past, one, two])
        np.testing.assert_allclose(found[span], np.tile(expected, (len(found[span]), 1)), atol=1e-6)
        np.testing.assert_allclose(
            CONTROLS["segment_mean"](take, CONFIG, 4.0)[span][0], means[number], atol=1e-6
        )


def test_time_knows_position_and_nothing_else(take):
    other = take.with_features(np.zeros_like(take.features))
    found = CONTROLS["time"](take, CONFIG, 4.0)
    np.testing.assert_array_equal(found, CONTROLS["time"](other, CONFIG, 4.0))
    assert found[:, :50].argmax(axis=1)[-1] == 46  # 13 of 14 tokens, in 50 bins
    assert (found[:, : 50 + 64].sum(axis=1) == 2).all()


@pytest.mark.parametrize("name", ["smooth", "segment_mean", "history"])
def test_later_segments_never_reach_earlier_tokens(take, name):
    changed = take.features.copy()
    changed[8:] += 5
    before = CONTROLS[name](take, CONFIG, 4.0)
    after = CONTROLS[name](take.with_features(changed), CONFIG, 4.0)
    np.testing.assert_array_equal(before[:8], after[:8])


def test_provenance_tells_privilege():
    upstream = Provenance(lookahead_s=2.0)
    assert control_provenance("smooth", upstream, 5.0) == upstream
    history = control_provenance("history", upstream, 5.0)
    assert (history.boundaries_test, history.lookahead_s) == ("annotated", 7.0)
    assert control_provenance("time", upstream, 5.0).whole_take
    inside = upstream.model_copy(update={"inside_segments": True})
    assert control_provenance("history", inside, 5.0).lookahead_s == 5.0


def test_position_alone_used_no_labels() -> None:
    upstream = Provenance(train_labels=True, label_folds=3, selection_labels="holdout")
    assert control_provenance("raw", upstream, 5.0) == upstream
    assert control_provenance("history", upstream, 5.0).train_labels
    time = control_provenance("time", upstream, 5.0)
    assert (time.train_labels, time.label_folds, time.selection_labels) == (False, 0, "none")
