"""Representations made by the encoder, trained or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from pjepa.controls.config import ControlsConfig
from pjepa.controls.representations import history, segment_mean_features
from pjepa.core.runs import runs
from pjepa.encoder.config import EncoderConfig
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.streams.schema import Boundaries, Provenance, SelectionLabels, StreamInfo
from pjepa.streams.store import Take
from pjepa.ui.errors import InputError


def encoded(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return the unmasked encoder over a whole take [T, d] (paper, "Inference")."""
    if take.features.shape[1] != encoder.config.d_in:
        raise InputError(
            f"take {take.take_id}: {take.features.shape[1]} channels, "
            f"the encoder takes {encoder.config.d_in}"
        )
    _, lengths = runs(encoder_segments(encoder, take))
    return encoder.encode(take.features, lengths.tolist()).float().cpu().numpy()


def encoded_segment_mean(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return encoder features averaged over each segment that the encoder knows [T, d]."""
    return segment_mean_features(encoded(encoder, take), encoder_segments(encoder, take))


def with_history(means: np.ndarray, encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return segment means [T, d] and the control `history` of the same segments [T, d + 4 d_in].

    Compared with `history` alone it shows what the encoder adds.
    """
    known = replace(take, segment=encoder_segments(encoder, take))
    return np.concatenate([means, history(known, ControlsConfig(), 0.0)], axis=1)


def encoder_segments(encoder: ProcedureEncoder, take: Take) -> np.ndarray:
    """Return c(i) [T] of a take as this encoder counts it."""
    name = f"take {take.take_id}"
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
        own: Boundaries = "found" if config.segments == "ruptures" else config.segments
        seen = seen.with_boundaries(own)
    offline = config.uses_segments and config.segments == "ruptures"
    if config.attention == "bidirectional" or config.input_norm == "take_center" or offline:
        return seen.model_copy(update={"whole_take": True})
    if config.attention == "clip_causal" and config.segments == "annotated":
        return stream.provenance.with_segments(longest_s)
    if config.attention == "token_causal":
        return seen
    found = config.attention == "clip_causal" and config.segments == "found"
    block = config.found_max if found else config.block
    ahead = seen.lookahead_s + block / stream.fps
    return seen.model_copy(update={"lookahead_s": ahead, "inside_segments": False})


def encoder_info(
    stream: StreamInfo,
    config: EncoderConfig,
    name: str,
    longest_s: float,
    selection: SelectionLabels = "none",
) -> StreamInfo:
    """Return file-level facts of an encoder's features.

    `selection` are the labels that the encoder was chosen with.
    """
    return stream.model_copy(
        update={
            "source": f"{name} of {stream.source}",
            "width": config.width,
            "provenance": encoder_provenance(stream, config, longest_s).with_selection(selection),
        }
    )


def whole_segment_info(
    stream: StreamInfo,
    config: EncoderConfig,
    name: str,
    longest_s: float,
    selection: SelectionLabels = "none",
) -> StreamInfo:
    """Return file-level facts of numbers known at the end of the encoder's segments.

    Whatever attention sees, a token waits for the end of its segment. What the segment's last
    token sees beyond that comes on top; attention over the same segments sees nothing beyond.
    """
    clips = config.model_copy(update={"attention": "clip_causal"})
    token, segment = (
        encoder_info(stream, seen, name, longest_s, selection) for seen in (config, clips)
    )
    blocks = config.attention == "block_causal" and config.segments != "fixed"
    widest = {
        "lookahead_s": segment.provenance.lookahead_s + blocks * config.block / stream.fps,
        "inside_segments": segment.provenance.inside_segments and not blocks,
        "whole_take": segment.provenance.whole_take or token.provenance.whole_take,
    }
    return segment.model_copy(update={"provenance": segment.provenance.model_copy(update=widest)})


def history_info(
    stream: StreamInfo,
    config: EncoderConfig,
    name: str,
    longest_s: float,
    selection: SelectionLabels = "none",
) -> StreamInfo:
    """Return file-level facts of `with_history`."""
    info = whole_segment_info(stream, config, name, longest_s, selection)
    return info.model_copy(update={"width": config.width + 4 * config.d_in})
