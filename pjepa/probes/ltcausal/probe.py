"""LT-Causal (paper, Supplement "Causal temporal probes"): LTContext without later segments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.probes.base.scoring import Sight
from pjepa.probes.base.trained import Task, TrainedKind
from pjepa.probes.ltcausal.config import CONFIG, LTCausalConfig
from pjepa.probes.ltcontext.probe import LTContext
from pjepa.ui.console import InputError


class LTCausal(LTContext):
    """LTContext that sees its own segment, or a fixed block, and the past.

    Its segments are [T] (or [B, T]). With `config.block` set, segments are blocks of that many
    frames from frame 0 on, whatever is given: no annotation is needed, and a frame looks ahead to
    the end of its block. The release's, with its instance norm, sees the whole take.
    """

    causal = True  # of convolutions and attention; an instance norm still sees everything
    config: LTCausalConfig

    def __init__(self, config: LTCausalConfig, task: Task) -> None:
        super().__init__(config, task)
        self.sight = Sight("segment") if config.block is None else Sight("block", config.block)
        if config.normalised:
            self.sight = Sight("take")

    def _segments(self, x: Tensor, segments: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        if self.config.block is not None:
            return torch.arange(length, device=x.device)[None] // self.config.block
        if segments is None:
            raise InputError(
                "LT-Causal needs the segments of a take; give them, or set probe.ltcausal.block to "
                "a number of frames"
            )
        ids = segments if segments.ndim == 2 else segments[None]
        if tuple(ids.shape) != (batch, length):
            raise InputError(
                f"LT-Causal: segments are {tuple(segments.shape)} for {length} frames; give one "
                "per frame"
            )
        if bool((ids < 0).all(1).any()):  # one giant segment would see the whole take
            raise InputError(
                "LT-Causal: a take has no annotated segment; annotate it or set "
                "probe.ltcausal.block to a number of frames"
            )
        return segment_order(ids)


def segment_order(ids: Tensor) -> Tensor:
    """Return c(i) = 0, 1, 2, ... along each take [B, T]: a run of equal ids is a segment.

    Ids need not grow: a gap (-1) between segments is a segment of its own, in its place.
    """
    changes = ids[:, 1:] != ids[:, :-1]
    return F.pad(changes.cumsum(1), (1, 0))


KIND = TrainedKind("ltcausal", CONFIG, LTCausal)
