"""Which segments attention and positions use: one entry for training, export and `encode()`.

| kind        | a segment ends                                   | a token may see ahead   |
|-------------|--------------------------------------------------|-------------------------|
| `annotated` | where the annotation says (Sec. 3.1): an oracle  | to its segment's end    |
| `fixed`     | every `block` tokens                             | to its block's end      |
| `found`     | where the tokens up to here changed              | at most `max_tokens`    |
| `ruptures`  | where that cuts the whole take best              | the whole take          |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pjepa.core.choices import SegmentKind
from pjepa.core.runs import runs
from pjepa.encoder.segments.found import FoundConfig, FoundParameters, fit_threshold, found_segments
from pjepa.encoder.segments.offline import fit_penalty, ruptures_segments
from pjepa.streams.segments import attention_segments
from pjepa.ui.errors import InputError


@dataclass(frozen=True)
class SegmentRule:
    """Where segments come from; `found` and `ruptures` need what was measured for them."""

    kind: SegmentKind = "annotated"
    block: int = 64
    found: FoundParameters | None = None


def take_segments(
    features: np.ndarray,
    annotated: np.ndarray | None,
    rule: SegmentRule,
    name: str = "the take",
    recording: np.ndarray | None = None,
) -> np.ndarray:
    """Return c(i) [T] of one take of tokens [T, D]; `annotated` [T] is the stream's `segment`.

    Only annotated segments reach from one `recording` [T] of the take into the next.
    """
    if rule.kind == "annotated":
        if annotated is None or not (annotated >= 0).any():
            raise InputError(
                f"{name}: no annotated segments, and in a single one every token would see the "
                "whole take; annotate it, or use pjepa.attention=block_causal pjepa.segments=fixed "
                "(or pjepa.segments=found)"
            )
        return attention_segments(annotated)
    starts = np.zeros(1, np.int64) if recording is None else runs(recording)[0]
    segments: list[np.ndarray] = []
    for part in np.split(features, starts[1:]):
        found = _unannotated(part, rule, name)
        segments.append(found if not segments else found + segments[-1].max() + 1)
    return np.concatenate(segments)


def _unannotated(features: np.ndarray, rule: SegmentRule, name: str) -> np.ndarray:
    """Return c(i) [T] of tokens [T, D] that were recorded in one go."""
    if rule.kind == "fixed":
        return np.arange(len(features), dtype=np.int64) // rule.block
    if rule.found is None:
        raise InputError(f"{name}: segments of kind {rule.kind} need a threshold; fit one first")
    if rule.kind == "found":
        return found_segments(features, rule.found)
    return ruptures_segments(features, rule.found)


def segment_threshold(
    takes: Sequence[np.ndarray], config: FoundConfig, std: np.ndarray, kind: SegmentKind
) -> float:
    """Return what `FoundParameters.threshold` must be on these training takes.

    0 where it is not used.
    """
    if kind == "found":
        return fit_threshold(takes, config, std)
    return fit_penalty(takes, config, std) if kind == "ruptures" else 0.0
