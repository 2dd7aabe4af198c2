"""What a representation says of itself, held against what it does: change a take and look."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from pjepa.core.runs import token_offsets
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import CONTROLS, control_info
from pjepa.features.encoded import (
    encoded,
    encoded_segment_mean,
    encoder_provenance,
    forecast_columns,
    forecast_info,
    whole_segment_provenance,
)
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster
from pjepa.model.neighbours import NeighbourHeads
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import Take

FPS, TOKENS, WIDTH = 4.0, 60, 6
STREAM = StreamInfo(source="test", fps=FPS, width=WIDTH)
LENGTHS = (7, 3, 12, 9, 1, 14, 8, 6)  # annotated
LONGEST_S = max(LENGTHS) / FPS


def example():
    """Return steps that differ, so that change points are found too."""
    rng = np.random.default_rng(0)
    segment = np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(np.int32)
    features = 3 * rng.normal(size=(len(LENGTHS), WIDTH))[segment] + rng.normal(
        size=(TOKENS, WIDTH)
    )
    times = np.arange(TOKENS) / FPS
    return Take("t", features.astype(np.float32), times, segment, token_offsets(segment))


def with_boundaries(take, lengths):
    segment = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    return replace(take, segment=segment, offset=token_offsets(segment))


def with_other_future(take, first):
    """Return the take with other tokens from `first` on, inside the same annotations."""
    features = take.features.copy()
    features[first:] = np.random.default_rng(1).normal(size=features[first:].shape) * 5
    return take.with_features(features)


def check(represent, provenance):
    """Fail if the representation knows more than its provenance says."""
    take = example()
    before = represent(take)
    if provenance.boundaries_test != "annotated":
        other = with_boundaries(take, (20, 2, 30, 8))
        np.testing.assert_array_equal(represent(other), before)
    if provenance.whole_take:
        return
    ahead = round(provenance.lookahead_s * FPS)
    for first in range(2, TOKENS, 4):
        known = max(0, first - ahead)  # tokens that must not know what comes from `first` on
        after = represent(with_other_future(take, first))
        np.testing.assert_allclose(after[:known], before[:known], atol=1e-4)


def encoder_of(attention, segments, positions, input_norm):
    torch.manual_seed(0)
    config = EncoderConfig(
        d_in=WIDTH, width=16, depth=2, heads=2, block=7, found_tokens=4, found_max=10,
        attention=attention, segments=segments, positions=positions, input_norm=input_norm,
        style_rank=2 if input_norm == "causal_center" else 0,
    )  # fmt: skip
    encoder = ProcedureEncoder(config).eval()
    encoder.style_read.normal_()
    encoder.style_write.normal_()
    encoder.style_strength.fill_(4.0)
    encoder.found_threshold.fill_(4.0)
    return encoder


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
    encoder = encoder_of(*kind)
    config = encoder.config
    forecaster = Forecaster(encoder, NeighbourHeads(16, WIDTH, (1,)))
    rows = (
        (encoded, encoder, encoder_provenance(STREAM, config, LONGEST_S)),
        (encoded_segment_mean, encoder, whole_segment_provenance(STREAM, config, LONGEST_S)),
        (
            forecast_columns,
            forecaster,
            forecast_info(STREAM, forecaster, LONGEST_S, "none").provenance,
        ),
    )
    for represent, made, provenance in rows:
        check(partial(represent, made), provenance)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_know_no_more_than_they_say(name):
    provenance = control_info(name, STREAM, WIDTH, LONGEST_S).provenance
    check(lambda take: CONTROLS[name](take, ControlsConfig(), FPS), provenance)
