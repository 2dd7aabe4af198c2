"""One training step of LTContext (2048-d, T = 4000, paper's table) against a plain one.

The reference is written from the description of LTContext: [B, d, T] tensors, every map a Conv1d,
key windows unfolded and copied, masks everywhere, PyTorch's own dropout. Its parameters carry the
official names, and both sides start from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.probes import Case
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.probes.ltcontext.model import LTContext, official_weights

FRAMES, WIDTH, CLASSES = 4000, 2048, 202


class PlainAttention(nn.Module):
    """Projections and masked softmax attention inside blocks of frames."""

    def __init__(self, width: int, config: LTContextConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.proj_q, self.proj_k, self.proj_v = (nn.Conv1d(width, width // 2, 1) for _ in range(3))
        self.proj = nn.Sequential(nn.GELU(), nn.Conv1d(width // 2, width, 1))
        self.dropout = nn.Dropout(config.attention_dropout)
        self.out_dropout = nn.Dropout(config.output_dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return q [N, d, Q], k and v [N, d, K], mask [N, 1, K] -> [N, d, Q]."""
        q, k, v = (x.unflatten(1, (self.heads, -1)) for x in (q, k, v))
        scores = torch.einsum("nhdq,nhdk->nhqk", q, k) / q.shape[2] ** 0.5
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = self.dropout(scores.softmax(-1).nan_to_num())
        return torch.einsum("nhqk,nhdk->nhdq", weights, v).flatten(1, 2)


class PlainWindowed(nn.Module):
    """Blocks of W queries, unfolded windows of 2W keys."""

    def __init__(self, width: int, config: LTContextConfig) -> None:
        super().__init__()
        self.attn, self.window = PlainAttention(width, config), config.window

    def forward(self, x: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        attn, window, length = self.attn, self.window, x.shape[2]

        def unfolded(y: Tensor, size: int) -> Tensor:
            return y.unfold(2, size, window).transpose(1, 2).flatten(0, 1).contiguous()

        maps = (attn.proj_q(x), attn.proj_k(x), attn.proj_v(values), mask)
        q, *keys = (F.pad(y, (0, -length % window)) for y in maps)
        k, v, m = (unfolded(F.pad(y, (window // 2, window // 2)), 2 * window) for y in keys)
        found = attn.attend(unfolded(q, window), k, v, m)  # [B n, d, W]
        found = found.unflatten(0, (len(x), -1)).transpose(1, 2).flatten(2)[..., :length]
        return attn.out_dropout(attn.proj(found)) * mask


class PlainLongTerm(nn.Module):
    """Groups of every G-th frame."""

    def __init__(self, width: int, config: LTContextConfig) -> None:
        super().__init__()
        self.attn, self.stride = PlainAttention(width, config), config.stride

    def forward(self, x: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        attn, stride, length = self.attn, self.stride, x.shape[2]

        def groups(y: Tensor) -> Tensor:
            y = F.pad(y, (0, -length % stride)).unflatten(2, (-1, stride))
            return y.permute(0, 3, 1, 2).flatten(0, 1).contiguous()  # [B G, d, m]

        maps = (attn.proj_q(x), attn.proj_k(x), attn.proj_v(values), mask)
        found = attn.attend(*(groups(y) for y in maps)).unflatten(0, (len(x), stride))
        found = found.permute(0, 2, 3, 1).flatten(2)[..., :length]
        return attn.out_dropout(attn.proj(found)) * mask


class PlainConv(nn.Module):
    """Dilated convolution and GELU."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilated_conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return F.gelu(self.dilated_conv(x)) * mask


class PlainLayer(nn.Module):
    """Convolution, both attentions, linear map."""

    def __init__(self, width: int, dilation: int, config: LTContextConfig) -> None:
        super().__init__()
        self.dilated_conv = PlainConv(width, dilation)
        self.windowed_attn = PlainWindowed(width, config)
        self.ltc_attn = PlainLongTerm(width, config)
        self.out_linear = nn.Conv1d(width, width, 1)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, f: Tensor, values: Tensor | None, mask: Tensor) -> Tensor:
        o = self.dilated_conv(f, mask)
        o = self.windowed_attn(o, o if values is None else values, mask) + o
        o = self.ltc_attn(o, o if values is None else values, mask) + o
        return (self.dropout(self.out_linear(o)) + f) * mask


class PlainStage(nn.Module):
    """Channel masking, input map, layers, output map."""

    def __init__(self, inputs: int, width: int, classes: int, config: LTContextConfig) -> None:
        super().__init__()
        self.channel_masking = nn.Dropout1d(config.channel_masking)
        self.input_proj = nn.Conv1d(inputs, width, 1)
        dilations = [config.dilation**layer for layer in range(config.layers)]
        self.layers = nn.ModuleList(PlainLayer(width, k, config) for k in dilations)
        self.out_proj = nn.Conv1d(width, classes, 1)

    def forward(self, x: Tensor, values: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor]:
        f = self.input_proj(self.channel_masking(x))
        for layer in self.layers:
            f = layer(f, values, mask)
        return self.out_proj(f) * mask, f


class PlainLTContext(nn.Module):
    """All stages: features [B, D, T], mask [B, 1, T] -> logits [S, B, C, T]."""

    def __init__(self, config: LTContextConfig, width: int, classes: int) -> None:
        super().__init__()
        later = config.later_width
        self.stage1 = PlainStage(width, config.width, classes, config)
        self.dim_reduction = nn.Conv1d(config.width, later, 1)
        count = config.stages - 1
        self.stages = nn.ModuleList(
            PlainStage(classes, later, classes, config) for _ in range(count)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        logits, f = self.stage1(x, None, mask)
        found, f = [logits], self.dim_reduction(f)
        for stage in self.stages:
            logits, f = stage(logits.softmax(1) * mask, f * mask, mask)
            found.append(logits)
        return torch.stack(found)


def plain_loss(stages: Tensor, labels: Tensor, config: LTContextConfig) -> Tensor:
    """Return cross-entropy and clipped smoothing, summed over stages [S, B, C, T]."""
    total = stages.new_zeros(())
    for logits in stages:
        log_p = logits.log_softmax(1)
        step = F.mse_loss(log_p[..., 1:], log_p.detach()[..., :-1], reduction="none")
        total = total + F.cross_entropy(logits, labels, ignore_index=-100)
        total = total + config.smoothing * step.clamp(max=config.clip).mean()
    return total


def training_step(model: nn.Module, loss: Callable[[], Tensor], fused: bool) -> Callable[[], float]:
    """Return a callable that makes the next step and returns its loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-4, weight_decay=0, fused=fused)

    def step() -> float:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return float(found.detach())

    return step


def cases() -> list[Case]:
    """Return the step of the paper's LTContext; each side with the optimiser it is trained by."""
    torch.manual_seed(0)
    config = LTContextConfig()
    plain = PlainLTContext(config, WIDTH, CLASSES)
    ours = LTContext(config, WIDTH, CLASSES)
    ours.load_state_dict(official_weights(plain.state_dict()))
    features, labels = torch.randn(FRAMES, WIDTH), torch.randint(CLASSES, (FRAMES,))
    channels, mask = features.T[None].contiguous(), torch.ones(1, 1, FRAMES, dtype=torch.bool)

    def plain_step() -> Tensor:
        return plain_loss(plain(channels, mask), labels[None], config)

    return [
        Case(
            f"LTContext, {WIDTH}-d, T = {FRAMES}",
            training_step(ours, lambda: ours.loss(ours(features), labels), fused=True),
            training_step(plain, plain_step, fused=False),
        )
    ]
