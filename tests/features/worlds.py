"""One take in segments, and a small encoder with heads."""

import numpy as np

from pjepa.core.runs import token_offsets
from pjepa.model.forecast import Forecaster
from pjepa.model.neighbours import NeighbourHeads
from pjepa.streams.stream import Take
from tests.worlds.token_projects import WIDTH, small_encoder

FPS = 4.0


def take_of(segment, seed=0):
    """Noise around a token of each segment, so that change points are found too."""
    segment = np.asarray(segment, np.int32)
    rng = np.random.default_rng(seed)
    steps = 3 * rng.normal(size=(int(segment.max(initial=0)) + 2, WIDTH))[segment]
    features = (steps + rng.normal(size=(len(segment), WIDTH))).astype(np.float32)
    return Take("t7", features, np.arange(len(segment)) / FPS, segment, token_offsets(segment))


def encoder_of(**changes):
    style = 2 if changes.get("input_norm") == "causal_center" else 0
    shape = {"depth": 1, "found_tokens": 8, "found_max": 20, "style_rank": style}
    encoder = small_encoder(**shape | changes)
    encoder.found_threshold.fill_(4.0)
    return encoder


def forecaster_of(encoder):
    return Forecaster(encoder, NeighbourHeads(16, WIDTH, (1,)))
