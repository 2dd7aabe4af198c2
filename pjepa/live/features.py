"""Features of new videos with the models of a run, as `tokens` and `features` would write them.

A new video has no annotated segments. Windows of backbone and pooler run over the whole of it, and
the encoder gets segments by the rule that `pjepa predict` and `pjepa stream` use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.files import read_object
from pjepa.core.runs import runs
from pjepa.core.time_grid import cut_ids
from pjepa.encoder.segments.rule import take_segments
from pjepa.features.encoded import encoder_info, encoder_provenance
from pjepa.live.models import FeatureModels
from pjepa.pooler.models.facts import folder_sha256
from pjepa.streams.schema import SelectionLabels, StreamInfo
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import stream_info


def represented(
    stack: FeatureModels, tokens: np.ndarray, name: str, cuts: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features [T, d] of a video's tokens [T, D], and its segments c(i) [T].

    No segment reaches across a cut, a token before which the time stamps jump.
    """
    recording = cut_ids(np.zeros(len(tokens), np.int64), cuts)
    segments = take_segments(tokens, None, stack.rule, name, recording)
    if stack.encoder is None:
        return tokens, segments
    _, lengths = runs(segments)
    return stack.encoder.encode(tokens, lengths.tolist()).float().cpu().numpy(), segments


def patch_features(
    stack: FeatureModels, patches: np.ndarray, cuts: Sequence[int] = ()
) -> np.ndarray:
    """Return the features [T, d] of a video's patches [steps, cells, width]; it may be cut."""
    tokens = stack.pooler.tokens(patches, cuts=cuts)
    per_step = stack.pooler.facts.per_step
    return represented(stack, tokens, "the video", [cut * per_step for cut in cuts])[0]


def features_info(stack: FeatureModels, model: Path) -> StreamInfo:
    """Return the facts about the features: labels used upstream, boundaries, lookahead."""
    trained, encoder = stack.pooler.facts, stack.encoder
    free = replace(trained, scope="take", patches=replace(trained.patches, window_scope="take"))
    info = stream_info(free, TokensConfig())
    config = None if encoder is None else encoder.config
    known = config is not None and config.uses_segments and config.segments == "annotated"
    if trained.knows_boundaries or known:  # in training; none are known here
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
    chosen: SelectionLabels = read_object(model / "pjepa" / "selection.json", "selection_labels")[
        "selection_labels"
    ]
    seen = encoder_provenance(info, config.model_copy(update=used), 0.0).with_selection(chosen)
    return encoder_info(info, "pjepa", config.width, seen)


def model_facts(stack: FeatureModels, model: Path) -> dict[str, Any]:
    """Return which models made the features and with which segments, as JSON values."""
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
