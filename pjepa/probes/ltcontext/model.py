"""LTContext (Bahrami, Francesca, Gall, ICCV 2023): convolution, local and long-term attention.

Stage 1 reads features; every later stage refines the class probabilities of the one before, with
attention values taken from its features. There is no position, and no normalisation unless asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from pjepa.probes.base.trained import padded
from pjepa.probes.ltcontext.attention import (
    Band,
    Strides,
    Visibility,
    Windows,
    sparse_attention,
    visibility,
)
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.ui.console import InputError

# Dilated convolution with a hand-written gradient: less time, less kept for backward.


def shifted_sum(x: Tensor, weight: Tensor, bias: Tensor, shifts: tuple[int, ...]) -> Tensor:
    """Return y[t] = bias + sum_i weight[..., i] x[t - shifts[i]] for x [B, T, d], zeros outside.

    A convolution as one matrix product per tap. One shift must be 0; a tap that only ever meets
    zeros is left out, and its gradient is 0.
    """
    return _ShiftedSum.apply(x, weight, bias, shifts)


class _ShiftedSum(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shifts: tuple[int, ...]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shifts = shifts
        taps = weight.permute(2, 1, 0).contiguous()  # [taps, in, out]
        y = torch.addmm(bias, x.flatten(0, 1), taps[shifts.index(0)]).view_as(x)
        for tap, source, target in _moved(x, y, shifts):
            target.addmm_(source, taps[tap])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        taps = weight.permute(2, 0, 1).contiguous()  # [taps, out, in]
        grad = grad.contiguous()
        still, rows = ctx.shifts.index(0), grad.flatten(0, 1)
        grad_taps = torch.zeros_like(taps)
        torch.mm(rows.T, x.flatten(0, 1), out=grad_taps[still])
        grad_x = torch.mm(rows, taps[still]).view_as(x)
        for tap, source, target in _moved(x, grad, ctx.shifts):
            grad_taps[tap].addmm_(target.T, source)
        for tap, source, target in _moved(grad_x, grad, ctx.shifts):
            source.addmm_(target, taps[tap])
        return grad_x, grad_taps.permute(1, 2, 0), rows.sum(0), None


def _moved(x: Tensor, y: Tensor, shifts: tuple[int, ...]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield tap, frames in x, and the frames of y they reach, for every shift that matters."""
    length = x.shape[1]
    for tap, shift in enumerate(shifts):
        if 0 < abs(shift) < length:
            later, earlier = max(shift, 0), max(-shift, 0)
            for source, target in zip(x, y, strict=True):
                yield tap, source[earlier : length - later], target[later : length - earlier]


# One stage of LTContext, from the bottom up: convolution, sparse attention, layer, stage.


@dataclass(frozen=True)
class Scene:
    """Facts about a batch that all layers share: attention patterns, and which frames are real."""

    windows: Visibility
    strides: Visibility
    mask: Tensor | None  # [B, T, 1], 1 at real frames; None: all are
    alone: bool = False  # padding must not be noticed, unlike in the official model

    def masked(self, x: Tensor) -> Tensor:
        """Return `x` [B, T, d] with zeros at padding."""
        return x if self.mask is None else x * self.mask


class DilatedConv(nn.Conv1d):
    """Three taps at t - k, t, t + k; causal: t - 2k, t - k, t. Zeros outside the take."""

    def __init__(self, width: int, dilation: int, causal: bool) -> None:
        super().__init__(width, width, 3, dilation=dilation)
        self.shifts = (2 * dilation, dilation, 0) if causal else (dilation, 0, -dilation)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, d]
        assert self.bias is not None
        return shifted_sum(x, self.weight, self.bias, self.shifts)


class SparseAttention(nn.Module):
    """Residual attention at half width: x + dropout(proj(GELU(attention(norm x))))."""

    def __init__(self, width: int, config: LTContextConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(width, 3 * (width // 2))
        self.proj = nn.Linear(width // 2, width)

    def forward(self, x: Tensor, values: Tensor | None, visible: Visibility) -> Tensor:
        """Return the output; `values` [B, T, d], if given, feed v (in the release k too)."""
        config, training = self.config, self.training
        found = sparse_attention(
            over_time(x) if config.normalised else x,
            values,
            self.qkv.weight,
            self.qkv.bias,
            visible,
            config.heads,
            config.attention_dropout if training else 0.0,
            own_keys=not config.release,
        )
        dropout = config.output_dropout if training and not config.release else 0.0
        return x + F.dropout(self.proj(F.gelu(found)), dropout)


def over_time(x: Tensor) -> Tensor:
    """Return the instance norm of [B, T, d]: each channel at mean 0, variance 1, with padding."""
    return F.layer_norm(x.mT, x.shape[1:2]).mT


class Layer(nn.Module):
    """Dilated convolution, windowed attention, long-term attention, linear map; residual."""

    def __init__(self, width: int, dilation: int, config: LTContextConfig, causal: bool) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.dilated_conv = DilatedConv(width, dilation, causal)
        self.windowed_attn = SparseAttention(width, config)
        self.ltc_attn = SparseAttention(width, config)
        self.out_linear = nn.Linear(width, width)

    def forward(self, f: Tensor, values: Tensor | None, scene: Scene) -> Tensor:
        o = scene.masked(F.gelu(self.dilated_conv(f)))
        o = scene.masked(self.windowed_attn(o, values, scene.windows))
        o = scene.masked(self.ltc_attn(o, values, scene.strides))
        dropout = self.dropout if self.training else 0.0
        return scene.masked(f + F.dropout(self.out_linear(o), dropout))


class Stage(nn.Module):
    """Channel masking, input map, layers, output map."""

    def __init__(
        self, inputs: int, width: int, classes: int, config: LTContextConfig, causal: bool
    ) -> None:
        super().__init__()
        self.channel_masking = config.channel_masking
        self.input_proj = nn.Linear(inputs, width)
        dilations = [config.dilation**layer for layer in range(config.layers)]
        self.layers = nn.ModuleList(Layer(width, k, config, causal) for k in dilations)
        self.out_proj = nn.Linear(width, classes)

    def forward(self, x: Tensor, values: Tensor | None, scene: Scene) -> tuple[Tensor, Tensor]:
        """Return logits [B, T, C] and features [B, T, d]."""
        # Masking the weight's columns masks the channels of a take without a copy of the take.
        keep = F.dropout(x.new_ones(len(x), 1, x.shape[2]), self.channel_masking, self.training)
        weight = self.input_proj.weight * keep  # [B, d, D]
        f = torch.baddbmm(self.input_proj.bias, x, weight.mT)  # padding becomes the bias, not 0
        f = scene.masked(f) if scene.alone else f
        for layer in self.layers:
            f = layer(f, values, scene)
        return scene.masked(self.out_proj(f)), f


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
