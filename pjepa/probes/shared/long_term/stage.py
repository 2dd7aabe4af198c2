"""One stage of LTContext, from the bottom up: convolution, sparse attention, layer, stage.

Tensors are [B, T, d], so each 1x1 convolution of the official model is a plain matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.nn.dropout import add_dropped
from pjepa.probes.shared.long_term.config import LTContextConfig
from pjepa.probes.shared.long_term.lean import shifted_sum
from pjepa.probes.shared.long_term.sparse_attention import sparse_attention
from pjepa.probes.shared.long_term.windowed import Visibility


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
        return add_dropped(x, self.proj(F.gelu(found)), dropout)


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
        return scene.masked(add_dropped(f, self.out_linear(o), dropout))


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
