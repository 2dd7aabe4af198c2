"""Representations made by the encoder, trained or not."""

from __future__ import annotations

import numpy as np
import torch

from pjepa.features.controls import segment_mean_features
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import Take
from pjepa.ui.console import InputError


def encoded(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return the unmasked encoder over a whole take [T, d] (paper, "Inference")."""
    segment = encoder_segments(encoder, take)
    return encoder.encode(take.features, segment=segment).float().cpu().numpy()


def represented(
    encoder: ProcedureEncoder, take: Take, forecaster: Forecaster | None = None
) -> list[np.ndarray]:
    """Return `pjepa` and `pjepa_segment` [T, d], and `forecast` [T, d_in + 1] if asked for.

    `pjepa_segment` averages over each segment that the encoder knows; `forecast` says what follows
    a token's segment, and the segment's surprise.
    """
    segment = encoder_segments(encoder, take)
    features = encoder.encode(take.features, segment=segment)
    tokens = features.float().cpu().numpy()
    rows = [tokens, segment_mean_features(tokens, segment)]
    if forecaster is not None:
        forecast = forecaster.forecast(take.features, segment=segment, features=features)
        rows.append(forecast.columns(segment))
    return rows


def encoder_segments(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return c(i) [T] of a take as this encoder counts it; its channels must be the encoder's."""
    name = f"take {take.take_id}"
    if take.features.shape[1] != encoder.config.d_in:
        raise InputError(
            f"{name}: {take.features.shape[1]} channels, the encoder takes {encoder.config.d_in}"
        )
    return encoder.segments(take.features, take.segment, name, take.recording)


def random_encoder(config: EncoderConfig, like: ProcedureEncoder, seed: int) -> ProcedureEncoder:
    """Return the same encoder untrained; input statistics are kept, as they are not learned."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = ProcedureEncoder(config)
    encoder.copy_statistics(like)
    return encoder.to(like.mean.device).eval()


def encoder_provenance(stream: StreamInfo, config: EncoderConfig, longest_s: float) -> Provenance:
    """Return the provenance the encoder adds: its look-ahead and whose segments it knows."""
    seen = stream.provenance
    if config.uses_segments:
        seen = seen.with_boundaries(config.segments)
    if config.attention == "bidirectional" or config.input_norm == "take_center":
        return seen.model_copy(update={"whole_take": True})
    if config.attention == "clip_causal" and config.segments == "annotated":
        return stream.provenance.with_segments(longest_s)
    if config.attention == "token_causal":
        return seen
    found = config.attention == "clip_causal" and config.segments == "found"
    block = config.found_max if found else config.block
    ahead = seen.lookahead_s + block / stream.fps
    return seen.model_copy(update={"lookahead_s": ahead, "inside_segments": False})


def whole_segment_provenance(
    stream: StreamInfo, config: EncoderConfig, longest_s: float
) -> Provenance:
    """Return the provenance of what is known at the end of the encoder's segments.

    Whatever attention sees, a token then waits for the end of its segment. Fixed blocks of
    attention may go on beyond that end, unless they are the segments.
    """
    clips = config.model_copy(update={"attention": "clip_causal"})
    segment = encoder_provenance(stream, clips, longest_s)
    beyond = config.attention == "block_causal" and config.segments != "fixed"
    token = encoder_provenance(stream, config, longest_s)
    return segment.model_copy(
        update={
            "lookahead_s": segment.lookahead_s + beyond * config.block / stream.fps,
            "inside_segments": segment.inside_segments and not beyond,
            "whole_take": segment.whole_take or token.whole_take,
        }
    )
