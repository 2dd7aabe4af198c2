"""LTContext (Bahrami, Francesca, Gall, ICCV 2023): convolution, local and long-term attention.

Stage 1 reads features; every later stage refines the class probabilities of the one before, with
attention values taken from its features. There is no position, and no normalisation unless asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.probes.base.trained import Task, TemporalProbe, TrainedKind
from pjepa.probes.ltcontext.attention import (
    Band,
    Strides,
    Visibility,
    Windows,
    attended,
    dropped,
    visibility,
)
from pjepa.probes.ltcontext.config import CONFIG, LTContextConfig
from pjepa.ui.console import InputError

# One stage of LTContext, from the bottom up: convolution, sparse attention, layer, stage.


@dataclass(frozen=True)
class Scene:
    """Facts about a batch that all layers share: attention patterns, and which frames are real."""

    windows: Visibility
    strides: Visibility
    mask: Tensor | None  # [B, T, 1], 1 at real frames; None: all are

    def masked(self, x: Tensor) -> Tensor:
        """Return `x` [B, T, d] with zeros at padding."""
        return x if self.mask is None else x * self.mask


class DilatedConv(nn.Conv1d):
    """Three taps at t - k, t, t + k; causal: t - 2k, t - k, t. Zeros outside the take."""

    def __init__(self, width: int, dilation: int, causal: bool) -> None:
        super().__init__(width, width, 3, dilation=dilation)
        k = dilation
        self.shifts: tuple[int, ...] = (2 * k, k, 0) if causal else (k, 0, -k)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, d]
        length = x.shape[1]
        met = [tap for tap, shift in enumerate(self.shifts) if abs(shift) < length]
        taps = slice(met[0], met[-1] + 1)  # the others only ever meet zeros
        shifts = self.shifts[taps]
        around = F.pad(x, (0, 0, shifts[0], -shifts[-1]))
        parts = [around[:, shifts[0] - shift :][:, :length] for shift in shifts]
        return F.linear(torch.cat(parts, -1), self.weight[..., taps].mT.flatten(1), self.bias)


class SparseAttention(nn.Module):
    """Residual attention at half width: x + dropout(proj(GELU(attention(norm x))))."""

    def __init__(self, width: int, config: LTContextConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(width, 3 * (width // 2))
        self.proj = nn.Linear(width // 2, width)

    def forward(self, x: Tensor, values: Tensor | None, visible: Visibility) -> Tensor:
        """Return the output [B, T, d]; `values`, if given, feed v (in the release k too)."""
        config, training = self.config, self.training
        q, k, v = self.projected(over_time(x) if config.normalised else x, values)
        read = attended(q, k, v, visible, config.attention_dropout if training else 0.0)
        dropout = config.output_dropout if training and not config.release else 0.0
        return x + dropped(self.proj(F.gelu(read.flatten(2))), dropout)

    def projected(self, x: Tensor, values: Tensor | None) -> list[Tensor]:
        """Return q, k and v [..., T, heads, d_h] of x and `values` [..., T, d]."""
        own = 3 if values is None else 1 if self.config.release else 2  # of the three, from x
        cut = len(self.qkv.weight) // 3 * own
        parts = [*F.linear(x, self.qkv.weight[:cut], self.qkv.bias[:cut]).chunk(own, -1)]
        if values is not None:
            fed = F.linear(values, self.qkv.weight[cut:], self.qkv.bias[cut:])
            parts += fed.chunk(3 - own, -1)
        return [part.unflatten(-1, (self.config.heads, -1)) for part in parts]


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
        return scene.masked(f + dropped(self.out_linear(o), dropout))


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
        for layer in self.layers:
            f = layer(f, values, scene)
        return scene.masked(self.out_proj(f)), f


class LTContext(TemporalProbe):
    """LTContext on one take; every prediction depends on the whole of it."""

    causal = False

    def __init__(self, config: LTContextConfig, task: Task) -> None:
        super().__init__()
        self.config, self.width = config, task.width
        first, later, classes = config.width, config.later_width, task.classes
        self.stage1 = Stage(task.width, first, classes, config, self.causal)
        self.dim_reduction = nn.Linear(first, later)
        self.stages = nn.ModuleList(
            Stage(classes, later, classes, config, self.causal) for _ in range(config.stages - 1)
        )

    def forward(
        self, features: Tensor, segments: Tensor | None = None, valid: Tensor | None = None
    ) -> list[Tensor]:
        """Return the logits of every stage, [T, C] for one take [T, D].

        A batch [B, T, D] is padded on the right, with `valid` bool [B, T] False there; as in the
        official model, padding slightly changes the end of a take. `segments` are not looked at.
        """
        x = self._checked(features)
        scene = self._scene(x, segments, None if valid is None else valid.bool())
        logits, f = self.stage1(x, None, scene)
        f = scene.masked(self.dim_reduction(f))
        stages = [logits]
        for stage in self.stages:
            logits, f = stage(scene.masked(logits.softmax(-1)), f, scene)
            stages.append(logits)
        return stages if features.ndim == 3 else [logits[0] for logits in stages]

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

    def predict(self, features: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the class probabilities [T, C] of the last stage for one take."""
        return self(features, segments)[-1].softmax(-1)

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
        order = self._segments(x, segments)
        real = x.new_ones(1, x.shape[1], dtype=torch.bool) if valid is None else valid
        near = Band if self.config.release else Windows
        patterns = near(self.config.window), Strides(self.config.stride)
        windows, strides = (visibility(p, real, order, x.dtype) for p in patterns)
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
    ours = {}
    for name, tensor in state.items():
        if ".proj_k." in name or ".proj_v." in name:
            continue
        parts = [name.replace(".proj_q.", f".proj_{part}.") for part in "qkv"]
        whole = torch.cat([state[part] for part in parts]) if ".proj_q." in name else tensor
        for official, new in OFFICIAL_NAMES.items():
            name = name.replace(official, new)
        ours[name] = whole.squeeze(-1) if whole.ndim == 3 else whole  # [out, in, 1] -> [out, in]
    return ours


KIND = TrainedKind("ltcontext", CONFIG, LTContext)
