import numpy as np
import pytest

from pjepa.encoder.config import EncoderConfig
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.features.encoded import (
    encoded,
    encoded_segment_mean,
    encoder_provenance,
    whole_segment_info,
)
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import Take
from pjepa.ui.errors import InputError


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


def seen(upstream=None, **changes):
    info = StreamInfo(source="x", fps=4.0, width=6, provenance=upstream or Provenance())
    return encoder_provenance(info, config(**changes), longest_s=7.0)


@pytest.mark.parametrize(
    ("changes", "boundaries", "lookahead", "whole"),
    [
        ({}, "annotated", 8.0, False),
        ({"segments": "found"}, "found", 6.0, False),
        ({"segments": "fixed"}, "fixed", 3.0, False),
        ({"segments": "ruptures"}, "found", None, True),
        ({"attention": "block_causal", "positions": "1d"}, "none", 3.0, False),
        ({"attention": "block_causal"}, "annotated", 3.0, False),
        ({"attention": "token_causal", "positions": "none"}, "none", 1.0, False),
        ({"attention": "bidirectional", "positions": "none"}, "none", None, True),
        ({"input_norm": "take_center"}, "annotated", None, True),
    ],
)
def test_provenance_says_what_the_encoder_saw(changes, boundaries, lookahead, whole):
    found = seen(Provenance(lookahead_s=1.0), **changes)
    assert found.boundaries_test == found.boundaries_train == boundaries
    assert found.whole_take == whole
    if lookahead is not None:
        assert found.lookahead_s == lookahead


def test_windows_inside_segments_add_nothing_but_annotations_stay_said():
    inside = Provenance(
        boundaries_train="annotated", boundaries_test="annotated", lookahead_s=2.0,
        inside_segments=True,
    )  # fmt: skip
    assert seen(inside).lookahead_s == 7.0
    free = seen(inside, segments="found")
    assert free.boundaries_test == "annotated"
    assert free.lookahead_s == 7.0


@pytest.mark.parametrize(
    ("changes", "boundaries", "lookahead", "whole"),
    [
        ({}, "annotated", 8.0, False),
        ({"segments": "found"}, "found", 6.0, False),
        ({"segments": "fixed"}, "fixed", 3.0, False),
        ({"segments": "ruptures"}, "found", None, True),
        ({"attention": "block_causal", "positions": "1d"}, "annotated", 10.0, False),
        ({"attention": "token_causal", "positions": "1d"}, "annotated", 8.0, False),
        (
            {"attention": "block_causal", "positions": "1d", "segments": "fixed"},
            "fixed",
            3.0,
            False,
        ),
        ({"attention": "token_causal", "segments": "found"}, "found", 6.0, False),
        ({"attention": "bidirectional", "positions": "none"}, "annotated", None, True),
    ],
)
def test_provenance_of_a_segments_mean_waits_for_its_end(changes, boundaries, lookahead, whole):
    stream = StreamInfo(source="x", fps=4.0, width=6, provenance=Provenance(lookahead_s=1.0))
    found = whole_segment_info(stream, config(**changes), "pjepa_segment", 7.0).provenance
    assert found.boundaries_test == found.boundaries_train == boundaries
    assert found.whole_take == whole
    if lookahead is not None:
        assert found.lookahead_s == lookahead


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
    tokens, means = (
        encoded(encoder, take(annotated)),
        encoded_segment_mean(encoder, take(annotated)),
    )
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
