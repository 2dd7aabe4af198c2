import numpy as np
import pytest

from pjepa.core.runs import token_offsets
from pjepa.features.encoded import (
    encoded,
    encoded_segment_mean,
    encoder_provenance,
    whole_segment_provenance,
)
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import Take
from pjepa.ui.console import InputError


def config(**changes):
    shape = {
        "d_in": 6,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "block": 8,
        "found_tokens": 8,
        "found_max": 20,
    }
    return EncoderConfig(**{**shape, "attention": "clip_causal", **changes})


def seen(upstream, provenance=encoder_provenance, **changes):
    info = StreamInfo(source="x", fps=4.0, width=6, provenance=upstream)
    return provenance(info, config(**changes), longest_s=7.0)


ROWS = [  # of tokens, then of means over their segments: boundaries, look-ahead (None: all)
    ({}, ("annotated", 8.0), ("annotated", 8.0)),
    ({"segments": "found"}, ("found", 6.0), ("found", 6.0)),
    ({"segments": "fixed"}, ("fixed", 3.0), ("fixed", 3.0)),
    ({"attention": "block_causal", "positions": "1d"}, ("none", 3.0), ("annotated", 10.0)),
    ({"attention": "block_causal"}, ("annotated", 3.0), ("annotated", 10.0)),
    ({"attention": "block_causal", "segments": "fixed"}, ("fixed", 3.0), ("fixed", 3.0)),
    ({"attention": "token_causal", "positions": "none"}, ("none", 1.0), ("annotated", 8.0)),
    ({"attention": "token_causal", "segments": "found"}, ("found", 1.0), ("found", 6.0)),
    ({"attention": "bidirectional", "positions": "none"}, ("none", None), ("annotated", None)),
    ({"input_norm": "take_center"}, ("annotated", None), ("annotated", None)),
]


@pytest.mark.parametrize(("changes", "token", "segment"), ROWS)
def test_provenance_says_what_tokens_and_segments_saw(changes, token, segment):
    for provenance, expected in ((encoder_provenance, token), (whole_segment_provenance, segment)):
        found = seen(Provenance(lookahead_s=1.0), provenance, **changes)
        assert found.boundaries_test == found.boundaries_train == expected[0]
        assert (None if found.whole_take else found.lookahead_s) == expected[1]


def test_windows_inside_segments_add_nothing_but_annotations_stay_said():
    inside = Provenance(
        boundaries_train="annotated", boundaries_test="annotated", lookahead_s=2.0,
        inside_segments=True,
    )  # fmt: skip
    assert seen(inside).lookahead_s == 7.0
    free = seen(inside, segments="found")
    assert free.boundaries_test == "annotated"
    assert free.lookahead_s == 7.0


def test_a_segments_mean_is_over_the_segments_the_encoder_knows():
    annotated = np.repeat([0, 1, 2], [3, 9, 8]).astype(np.int32)
    for changes in ({"segments": "fixed"}, {"segments": "found"}):
        encoder = ProcedureEncoder(config(attention="block_causal", **changes)).eval()
        means = [
            encoded_segment_mean(encoder, take(segment))
            for segment in (annotated, np.zeros(20, np.int32), np.full(20, -1, np.int32))
        ]
        for other in means[1:]:  # no annotated boundary enters
            np.testing.assert_array_equal(means[0], other)
    encoder = ProcedureEncoder(config()).eval()
    shown = take(annotated)
    tokens, means = encoded(encoder, shown), encoded_segment_mean(encoder, shown)
    np.testing.assert_allclose(means[3], tokens[3:12].mean(axis=0), atol=1e-5)


def take(segment):
    features = np.random.default_rng(0).normal(size=(len(segment), 6)).astype(np.float32)
    times = np.arange(len(segment)) / 4
    return Take("t7", features, times, segment, token_offsets(segment))


def test_a_take_without_annotations_is_named_and_given_a_way_out():
    encoder = ProcedureEncoder(config()).eval()
    with pytest.raises(InputError, match=r"take t7: no annotated segments.*segments=fixed"):
        encoded(encoder, take(np.full(9, -1, np.int32)))
    fixed = ProcedureEncoder(config(segments="fixed")).eval()
    assert encoded(fixed, take(np.full(9, -1, np.int32))).shape == (9, 16)
