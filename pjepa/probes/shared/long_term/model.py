"""LTContext (Bahrami, Francesca, Gall, ICCV 2023): convolution, local and long-term attention.

Stage 1 reads features; every later stage refines the class probabilities of the one before, with
attention values taken from its features. There is no position, and no normalisation unless asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.probes.shared.long_term.config import LTContextConfig
from pjepa.probes.shared.long_term.stage import Scene, Stage
from pjepa.probes.shared.long_term.windowed import Band, Strides, Windows, visibility
from pjepa.probes.shared.together import padded
from pjepa.ui.errors import InputError


class LTContext(nn.Module):
    """The probe: `module(features)` -> stage logits, `loss(logits, labels)`, `predict(features)`.

    Every prediction depends on the whole take.
    """

    causal = False

    def __init__(self, config: LTContextConfig, width: int, classes: int) -> None:
        super().__init__()
        self.config, self.width = config, width
        first, later = config.width, config.later_width
        self.stage1 = Stage(width, first, classes, config, self.causal)
        self.dim_reduction = nn.Linear(first, later)
        self.stages = nn.ModuleList(
            Stage(classes, later, classes, config, self.causal) for _ in range(config.stages - 1)
        )

    def forward(
        self,
        features: Tensor,
        segments: Tensor | None = None,
        valid: Tensor | None = None,
        alone: bool = False,
    ) -> list[Tensor]:
        """Return the logits of every stage, [T, C] for one take [T, D].

        A batch [B, T, D] is padded on the right, with `valid` bool [B, T] False there; as in the
        official model, padding slightly changes the end of a take, unless `alone` asks for what
        each take gives by itself. `segments` are not looked at.
        """
        x = self._checked(features)
        valid = None if valid is None else valid.bool()
        scene = replace(self._scene(x, segments, valid), alone=alone)
        logits, f = self.stage1(x, None, scene)
        f = scene.masked(self.dim_reduction(f))
        found = [logits]
        for stage in self.stages:
            logits, f = stage(scene.masked(found[-1].softmax(-1)), f, scene)
            found.append(logits)
        return found if features.ndim == 3 else [logits[0] for logits in found]

    def loss(self, stage_logits: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the sum of the stages' losses for labels [T] (or [B, T]); < 0 is unknown."""
        *frames, classes = stage_logits[-1].shape
        if list(labels.shape) != frames:
            raise InputError(
                f"{labels.numel()} labels for {math.prod(frames)} frames; give one per frame"
            )
        if int(labels.max()) >= classes:
            raise InputError(
                f"label {int(labels.max())} is not one of {classes} classes; build the probe for "
                "all of them"
            )
        config = self.config
        terms = [loss_terms(logits, labels, config.clip) for logits in stage_logits]
        return torch.stack([entropy + config.smoothing * step for entropy, step in terms]).sum()

    @torch.no_grad()
    def logits(self, features: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """Return the logits [T, C] of every stage for one take, without dropout."""
        training = self.training
        self.eval()
        try:
            return self(features, segments)
        finally:
            self.train(training)

    def predict(self, features: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the class probabilities [T, C] of the last stage for one take."""
        return self.logits(features, segments)[-1].softmax(-1)

    @torch.no_grad()
    def predict_together(self, takes: Sequence[Tensor]) -> Tensor:
        """Return the class probabilities [B, T, C] of takes [T_i, D], each as if it were alone."""
        x, valid = padded(takes)
        found: list[Tensor] = self(x, None, valid, alone=True)
        return found[-1].softmax(-1)

    def _checked(self, features: Tensor) -> Tensor:
        """Return features as a batch [B, T, D]."""
        shape = tuple(features.shape)
        if features.ndim not in (2, 3) or shape[-1] != self.width or 0 in shape:
            raise InputError(
                f"{type(self).__name__}: features are {shape}, expected [frames, {self.width}] "
                "with at least one frame"
            )
        return features if features.ndim == 3 else features[None]

    def _segments(self, x: Tensor, segments: Tensor | None) -> Tensor | None:
        """Return c(i) [B, T], or None where the future may be seen."""
        return None

    def _scene(self, x: Tensor, segments: Tensor | None, valid: Tensor | None) -> Scene:
        place = self._segments(x, segments)
        real = x.new_ones(1, x.shape[1], dtype=torch.bool) if valid is None else valid
        near = Band if self.config.release else Windows
        patterns = near(self.config.window), Strides(self.config.stride)
        windows, strides = (visibility(p, real, place, x.dtype) for p in patterns)
        mask = None if valid is None else valid[..., None].to(x.dtype)
        return Scene(windows, strides, mask)


def loss_terms(logits: Tensor, labels: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and smoothing of one stage, logits [..., T, C], labels [..., T].

    Cross-entropy: mean over known frames (0 if there is none). Smoothing: mean over all entries,
    padding and unknown frames included, of min((log p[t] - log p[t-1])^2, clip); the frame before
    gets no gradient.
    """
    log_p = logits.log_softmax(-1)
    known = labels >= 0
    target = labels.where(known, -100).flatten().long()
    entropy = F.nll_loss(log_p.flatten(0, -2), target, reduction="sum", ignore_index=-100)
    step = log_p[..., 1:, :] - log_p[..., :-1, :].detach()  # [..., T - 1, C]
    smoothing = step.square().clamp(max=clip).sum() / max(step.numel(), 1)
    return entropy / known.sum().clamp(min=1), smoothing


OFFICIAL_NAMES = {
    "dilated_conv.dilated_conv.": "dilated_conv.",
    "_attn.attn.": "_attn.",
    "_attn.out_proj.1.": "_attn.proj.",  # the P-JEPA release
    ".proj.1.": ".proj.",
    ".proj_q.": ".qkv.",
}


def official_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our state dict, given that of an official model, LTContext's or the release's."""
    state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    found = {}
    for name, tensor in state.items():
        if ".proj_k." in name or ".proj_v." in name:
            continue
        parts = [name.replace(".proj_q.", f".proj_{part}.") for part in "qkv"]
        whole = torch.cat([state[part] for part in parts]) if ".proj_q." in name else tensor
        for theirs, ours in OFFICIAL_NAMES.items():
            name = name.replace(theirs, ours)
        found[name] = whole.squeeze(-1) if whole.ndim == 3 else whole  # [out, in, 1] -> [out, in]
    return found
