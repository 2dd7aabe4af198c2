import numpy as np
import pytest

from pjepa.features.encoded import (
    encoded,
    encoder_provenance,
    represented,
    whole_segment_provenance,
)
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.ui.console import InputError
from tests.features.worlds import FPS, encoder_of, forecaster_of, take_of
from tests.worlds.token_projects import WIDTH


def seen(upstream, provenance=encoder_provenance, **changes):
    info = StreamInfo(source="x", fps=FPS, width=WIDTH, provenance=upstream)
    return provenance(info, encoder_of(**changes).config, longest_s=7.0)


ROWS = [  # of tokens, then of means over their segments: boundaries, look-ahead (None: all)
    ({}, ("annotated", 8.0), ("annotated", 8.0)),
    ({"segments": "found"}, ("found", 6.0), ("found", 6.0)),
    ({"segments": "fixed"}, ("fixed", 3.0), ("fixed", 3.0)),
    ({"attention": "block_causal", "positions": "1d"}, ("none", 3.0), ("annotated", 10.0)),
    ({"attention": "block_causal"}, ("annotated", 3.0), ("annotated", 10.0)),
    ({"attention": "block_causal", "segments": "fixed"}, ("fixed", 3.0), ("fixed", 3.0)),
    ({"attention": "block_causal", "segments": "found"}, ("found", 3.0), ("found", 8.0)),
    ({"attention": "token_causal", "positions": "none"}, ("none", 1.0), ("annotated", 8.0)),
    ({"attention": "token_causal", "segments": "found"}, ("found", 1.0), ("found", 6.0)),
    ({"attention": "token_causal", "segments": "fixed"}, ("fixed", 1.0), ("fixed", 3.0)),
    ({"attention": "bidirectional", "positions": "none"}, ("none", None), ("annotated", None)),
    ({"input_norm": "take_center"}, ("annotated", None), ("annotated", None)),
]


@pytest.mark.parametrize(("changes", "token", "segment"), ROWS)
def test_provenance_says_what_tokens_and_segments_saw(changes, token, segment):
    for provenance, expected in ((encoder_provenance, token), (whole_segment_provenance, segment)):
        told = seen(Provenance(lookahead_s=1.0), provenance, **changes)
        assert told.boundaries_test == told.boundaries_train == expected[0]
        assert (None if told.whole_take else told.lookahead_s) == expected[1]


def test_windows_inside_segments_add_nothing_but_annotations_stay_said():
    inside = Provenance(
        boundaries_train="annotated", boundaries_test="annotated", lookahead_s=2.0,
        inside_segments=True,
    )  # fmt: skip
    assert seen(inside).lookahead_s == 7.0
    free = seen(inside, segments="found")
    assert (free.boundaries_test, free.lookahead_s) == ("annotated", 7.0)


def test_means_and_forecasts_are_over_the_segments_the_encoder_knows():
    """Annotated ones, whatever their ids, and no annotated boundary where it has its own."""
    lengths = [3, 9, 8]
    take, encoder = take_of(np.repeat([5, 7, 9], lengths)), encoder_of()
    forecaster = forecaster_of(encoder)
    tokens, means, columns = represented(encoder, take, forecaster)
    np.testing.assert_array_equal(tokens, encoder.encode(take.features, lengths).numpy())
    np.testing.assert_allclose(means[3], tokens[3:12].mean(axis=0), atol=1e-5)
    expected = forecaster.forecast(take.features, lengths).columns(np.repeat([0, 1, 2], lengths))
    np.testing.assert_array_equal(columns, expected)
    for segments in ("fixed", "found"):
        encoder = encoder_of(attention="block_causal", segments=segments)
        first = represented(encoder, take)
        for segment in (np.zeros(20, np.int32), np.full(20, -1, np.int32)):
            other = take_of(segment).with_features(take.features)
            assert all(map(np.array_equal, first, represented(encoder, other)))


def test_a_take_that_cannot_be_encoded_is_named_and_given_a_way_out():
    take = take_of(np.full(9, -1))
    with pytest.raises(InputError, match=r"take t7: no annotated segments.*segments=fixed"):
        encoded(encoder_of(), take)
    assert encoded(encoder_of(segments="fixed"), take).shape == (9, 16)
    with pytest.raises(InputError, match="take t7: 3 channels, the encoder takes 6"):
        encoded(encoder_of(), take.with_features(take.features[:, :3]))
