"""Representations made by the encoder, trained or not."""

from __future__ import annotations

import numpy as np
import torch

from pjepa.errors import InputError
from pjepa.features.controls import segment_mean_features
from pjepa.model.encoder import EncoderConfig, ProcedureEncoder
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import attention_segments, runs
from pjepa.streams.store import Take


def encoded(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """The unmasked encoder over a whole take [T, d] (paper, "Inference")."""
    if take.features.shape[1] != encoder.config.d_in:
        raise InputError(
            f"take {take.take_id}: {take.features.shape[1]} channels, "
            f"the encoder takes {encoder.config.d_in}"
        )
    _, lengths = runs(attention_segments(take.segment))
    return encoder.encode(take.features, lengths.tolist()).float().cpu().numpy()


def encoded_segment_mean(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Encoder features averaged over each segment [T, d]."""
    return segment_mean_features(encoded(encoder, take), take.segment)


def random_encoder(config: EncoderConfig, like: ProcedureEncoder, seed: int) -> ProcedureEncoder:
    """The same encoder untrained; it keeps the input statistics, which are no learning."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = ProcedureEncoder(config)
    encoder.copy_statistics(like)
    return encoder.to(like.mean.device).eval()


def encoder_provenance(stream: StreamInfo, config: EncoderConfig, longest_s: float) -> Provenance:
    """What the encoder adds: its attention looks ahead, its segments were given."""
    seen = stream.provenance
    if config.attention == "clip_causal":
        seen = seen.with_segments(longest_s)
    elif config.attention == "block_causal":
        ahead = seen.lookahead_s + config.block / stream.fps
        seen = seen.model_copy(update={"lookahead_s": ahead})
    if config.positions == "2d":  # rotary positions count annotated segments
        seen = seen.model_copy(
            update={"boundaries_train": "annotated", "boundaries_test": "annotated"}
        )
    if config.attention == "bidirectional" or config.input_norm == "take_center":
        seen = seen.model_copy(update={"whole_take": True})
    return seen


def encoder_info(
    stream: StreamInfo, config: EncoderConfig, name: str, longest_s: float
) -> StreamInfo:
    """File-level facts of encoder features."""
    return stream.model_copy(
        update={
            "source": f"{name} of {stream.source}",
            "width": config.width,
            "provenance": encoder_provenance(stream, config, longest_s),
        }
    )
