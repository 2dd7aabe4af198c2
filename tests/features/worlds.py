"""One take in segments, and a small encoder with heads."""

import numpy as np
import torch

from pjepa.core.runs import token_offsets
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster
from pjepa.model.neighbours import NeighbourHeads
from pjepa.streams.stream import Take

FPS, WIDTH = 4.0, 6


def take_of(segment, seed=0):
    """Noise around a token of each segment, so that change points are found too."""
    segment = np.asarray(segment, np.int32)
    rng = np.random.default_rng(seed)
    steps = 3 * rng.normal(size=(int(segment.max(initial=0)) + 2, WIDTH))[segment]
    features = (steps + rng.normal(size=(len(segment), WIDTH))).astype(np.float32)
    return Take("t7", features, np.arange(len(segment)) / FPS, segment, token_offsets(segment))


def encoder_of(**changes):
    torch.manual_seed(0)
    settings = {"attention": "clip_causal", "block": 8, "found_tokens": 8, "found_max": 20}
    settings |= {"d_in": WIDTH, "width": 16, "depth": 1, "heads": 2, **changes}
    if settings.get("input_norm") == "causal_center":
        settings["style_rank"] = 2
    encoder = ProcedureEncoder(EncoderConfig(**settings)).eval()
    encoder.style_read.normal_()
    encoder.style_write.normal_()
    encoder.style_strength.fill_(4.0)
    encoder.found_threshold.fill_(4.0)
    return encoder


def forecaster_of(encoder):
    return Forecaster(encoder, NeighbourHeads(16, WIDTH, (1,)))
