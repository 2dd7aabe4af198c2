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
    encoder.mean.copy_(like.mean)
    encoder.std.copy_(like.std)
    return encoder.to(like.mean.device).eval()


def encoder_info(
    stream: StreamInfo, config: EncoderConfig, name: str, ahead_s: float
) -> StreamInfo:
    """File-level facts of encoder features: attention adds its own look ahead and boundaries."""
    upstream = stream.provenance
    segments = config.attention == "clip_causal" or config.positions == "2d"
    ahead = {
        "clip_causal": ahead_s,
        "block_causal": config.block / stream.fps,
        "token_causal": 0.0,
        "bidirectional": 0.0,
    }[config.attention]
    provenance = Provenance(
        train_labels=upstream.train_labels,
        selection_labels=upstream.selection_labels,
        boundaries_train="annotated" if segments else upstream.boundaries_train,
        boundaries_test="annotated" if segments else upstream.boundaries_test,
        lookahead_s=upstream.lookahead_s + ahead,
        whole_take=upstream.whole_take
        or config.attention == "bidirectional"
        or config.input_norm == "take_center",
    )
    return stream.model_copy(
        update={
            "source": f"{name} of {stream.source}",
            "width": config.width,
            "provenance": provenance,
        }
    )
