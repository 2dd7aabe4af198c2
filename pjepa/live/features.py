"""Features of new videos with the models of a run: what `tokens` and `features` would write.

A new video has no annotated segments. Windows of backbone and pooler run over the whole of it, and
the encoder gets segments by the rule that `pjepa predict` and `pjepa stream` use.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.config.tokens import TokensConfig
from pjepa.features.encoded import encoder_info
from pjepa.live.models import Stack
from pjepa.pooling.facts import folder_sha256
from pjepa.runs import runs
from pjepa.streams.materialise import stream_info
from pjepa.streams.rule import take_segments
from pjepa.streams.schema import SelectionLabels, StreamInfo
from pjepa.work import read_json


def represented(stack: Stack, tokens: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features [T, d] of a video's tokens [T, D], and its segments c(i) [T]."""
    segments = take_segments(tokens, None, stack.rule, name)
    if stack.encoder is None:
        return tokens, segments
    _, lengths = runs(segments)
    return stack.encoder.encode(tokens, lengths.tolist()).float().cpu().numpy(), segments


def patch_features(stack: Stack, patches: np.ndarray) -> np.ndarray:
    """Features [T, d] of a video's patches [steps, cells, width]."""
    return represented(stack, stack.pooler.tokens(patches), "the video")[0]


def features_info(stack: Stack, model: Path) -> StreamInfo:
    """What the features of a new video are: labels used upstream, boundaries, lookahead."""
    trained, encoder = stack.pooler.facts, stack.encoder
    free = replace(trained, scope="take", patches=replace(trained.patches, window_scope="take"))
    info = stream_info(free, TokensConfig())
    config = None if encoder is None else encoder.config
    known = config is not None and config.uses_segments and config.segments == "annotated"
    if trained.knows_boundaries or known:  # in training; here nobody knows any
        seen = info.provenance.model_copy(update={"boundaries_train": "annotated"})
        info = info.model_copy(update={"provenance": seen})
    if config is None:
        return info
    used: dict[str, Any] = {}
    if config.uses_segments:
        used = {"segments": stack.rule.kind}
        if stack.rule.found is not None:
            used["found_max"] = stack.rule.found.config.max_tokens
        if config.attention == "clip_causal":
            used["block"] = stack.rule.block
    chosen: SelectionLabels = read_json(model / "pjepa" / "selection.json")["selection_labels"]
    return encoder_info(info, config.model_copy(update=used), "pjepa", 0.0, chosen)


def model_facts(stack: Stack, model: Path) -> dict[str, Any]:
    """Which models made the features, and by which segments (JSON values)."""
    rule, encoder = stack.rule, stack.encoder
    pooler = {"kind": stack.pooler.facts.kind, "sha256": stack.pooler.facts.sha256}
    if encoder is None:
        return {"pooler": pooler, "encoder": None, "segments": None, "notes": list(stack.notes)}
    segments: dict[str, Any] | None = None
    if encoder.config.uses_segments:
        segments = {"kind": rule.kind, "tokens": rule.block}
        if rule.found is not None:
            lengths = rule.found.config
            segments |= {"tokens": lengths.tokens, "max_tokens": lengths.max_tokens}
            segments["threshold"] = rule.found.threshold
    return {
        "pooler": pooler,
        "encoder": {
            "sha256": folder_sha256(model / "pjepa"),
            "attention": encoder.config.attention,
            "trained_on_segments": encoder.config.segments,
        },
        "segments": segments,
        "notes": list(stack.notes),
    }
