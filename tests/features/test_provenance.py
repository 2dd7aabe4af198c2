"""What a representation says of itself, held against what it does: change a take and look."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pjepa.core.runs import token_offsets
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import CONTROLS, control_info
from pjepa.features.encoded import encoder_provenance, represented, whole_segment_provenance
from pjepa.streams.provenance import StreamInfo
from tests.features.worlds import FPS, encoder_of, forecaster_of, take_of
from tests.worlds.token_projects import WIDTH

STREAM = StreamInfo(source="test", fps=FPS, width=WIDTH)
LENGTHS = (7, 3, 12, 9, 1, 14, 8, 6)  # annotated
TOKENS, LONGEST_S = sum(LENGTHS), max(LENGTHS) / FPS


def with_boundaries(take, lengths):
    segment = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    return replace(take, segment=segment, offset=token_offsets(segment))


def with_other_future(take, first):
    """Return the take with other tokens from `first` on, inside the same annotations."""
    features = take.features.copy()
    features[first:] = np.random.default_rng(1).normal(size=features[first:].shape) * 5
    return take.with_features(features)


def check(represent, provenances):
    """Fail if a representation knows more than its provenance says."""
    take = take_of(np.repeat(np.arange(len(LENGTHS)), LENGTHS))
    before, other = represent(take), represent(with_boundaries(take, (20, 2, 30, 8)))
    after = {first: represent(with_other_future(take, first)) for first in range(2, TOKENS, 4)}
    for number, provenance in enumerate(provenances):
        if provenance.boundaries_test != "annotated":
            np.testing.assert_array_equal(other[number], before[number])
        if provenance.whole_take:
            continue
        ahead = round(provenance.lookahead_s * FPS)
        for first, rows in after.items():
            blind = max(0, first - ahead)  # tokens that must not know what comes from `first` on
            np.testing.assert_allclose(rows[number][:blind], before[number][:blind], atol=1e-4)


KINDS = list(
    product(
        ("clip_causal", "block_causal", "token_causal", "bidirectional"),
        ("annotated", "fixed", "found"),
        ("2d", "1d"),
        ("none", "causal_center", "take_center"),
    )
)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_encoded_features_know_no_more_than_they_say(kind):
    names = ("attention", "segments", "positions", "input_norm")
    settings = dict(zip(names, kind, strict=True))
    encoder = encoder_of(depth=2, block=7, found_tokens=4, found_max=10, **settings)
    forecaster = forecaster_of(encoder)
    token = encoder_provenance(STREAM, encoder.config, LONGEST_S)
    segment = whole_segment_provenance(STREAM, encoder.config, LONGEST_S)
    check(lambda take: represented(encoder, take, forecaster), (token, segment, segment))


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_know_no_more_than_they_say(name):
    provenance = control_info(name, STREAM, WIDTH, LONGEST_S).provenance
    check(lambda take: [CONTROLS[name](take, ControlsConfig(), FPS)], [provenance])
