"""The three kinds of block: input (i), update (u), update over predicted runs (U).

A block's branches return `hidden` channels whose last C (frames, runs) or C + 1 (tokens; the last
one is the null class) are class logits; there is no other classifier. In the features that flow
on, those channels hold their softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pjepa.probes.fact.branches import (
    FrameBranch,
    OneHeadCrossAttention,
    SelfBranch,
    SelfCrossBranch,
)
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.gru import gru_states


class Runs(NamedTuple):
    """Maximal runs of equal label along a take."""

    labels: Tensor  # [R]
    of_frame: Tensor  # [T] index of the frame's run
    lengths: Tensor  # [R]

    def means(self, frames: Tensor) -> Tensor:
        """Return the mean of the frames [T, C] of every run [R, C]."""
        return torch.segment_reduce(frames, "mean", lengths=self.lengths)

    def spread(self, x: Tensor) -> Tensor:
        """Return for every frame the row of its run in x [R, C]: [T, C]."""
        return x[self.of_frame]


def runs_of(labels: Tensor) -> Runs:
    """Return the runs of labels [T], on their device."""
    return Runs(*torch.unique_consecutive(labels, return_inverse=True, return_counts=True))


class Exchange(NamedTuple):
    """Attention logits between tokens and places: the frames (u) or the predicted runs (U)."""

    f2a: Tensor  # [M, P] tokens ask places
    a2f: Tensor  # [P, M] places ask tokens
    runs: Runs | None = None  # None: places are frames
    logits: Tensor | None = None  # [P, C] class logits of the runs

    def frame_attention(self) -> Tensor:
        """Return how much every frame attends to every token [T, M]."""
        attention = self.a2f.softmax(-1)
        return attention if self.runs is None else self.runs.spread(attention)


@dataclass(frozen=True)
class BlockOutput:
    """Class logits of one block, its attention (none in block i), and the features it passes on."""

    frame_logits: Tensor  # [T, C]
    token_logits: Tensor  # [M, C + 1]
    exchange: Exchange | None
    frames: Tensor  # [T, hidden]
    tokens: Tensor  # [M, hidden]


def split(features: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the features with softmax in their last `classes` channels, and the logits there."""
    rest, logits = features.tensor_split([-classes], dim=-1)
    return torch.cat([rest, logits.softmax(-1)], dim=-1), logits


class InputBlock(nn.Module):
    """Block `i`: both branches start from the input."""

    def __init__(self, config: FactConfig, width: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.frame_branch = FrameBranch(config, config.frame_layers, width)
        self.action_branch = SelfCrossBranch(config)

    def forward(self, x: Tensor, query: Tensor) -> BlockOutput:
        """Return the block's output for features x [T, D] and the tokens' positions [M, P]."""
        x, frame_logits = split(self.frame_branch(x), self.classes)
        a, token_logits = split(self.action_branch(query, x), self.classes + 1)
        return BlockOutput(frame_logits, token_logits, None, x, a)


class UpdateBlock(nn.Module):
    """Block `u`: tokens attend to frames, then to each other, and frames attend to tokens."""

    def __init__(self, config: FactConfig, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.frame_branch = FrameBranch(config, config.update_frame_layers)
        self.f2a_layer = OneHeadCrossAttention(config, config.action_dim)
        self.action_branch = SelfBranch(config)
        self.a2f_layer = OneHeadCrossAttention(config, config.frame_dim)

    def forward(self, last: BlockOutput, query: Tensor) -> BlockOutput:
        """Return the block's output after the block `last`."""
        a, f2a = self.f2a_layer(last.frames, last.tokens, y_position=query)
        a, token_logits = split(self.action_branch(a, query), self.classes + 1)
        x, a2f = self.a2f_layer(a, last.frames, x_position=query)  # [T, frame_dim]
        x, frame_logits = split(self.frame_branch(x), self.classes)
        return BlockOutput(frame_logits, token_logits, Exchange(f2a, a2f), x, a)


class RunBlock(UpdateBlock):
    """Block `U`: temporal down- and upsampling. Tokens and predicted runs exchange information,
    frames take the result.

    Runs are those of the frames' most probable class in the block before.
    """

    def __init__(self, config: FactConfig, classes: int) -> None:
        super().__init__(config, classes)
        hidden, width = config.hidden, config.frame_dim
        self.seg_update = nn.GRU(hidden, hidden // 2, config.segment_layers, bidirectional=True)
        self.seg_combine = nn.Linear(hidden, hidden)
        self.sf_merge = nn.Sequential(nn.Linear(width + hidden, width), nn.ReLU())

    def forward(self, last: BlockOutput, query: Tensor) -> BlockOutput:
        """Return the block's output after the block `last`."""
        runs = runs_of(last.frames.detach()[:, -self.classes :].argmax(-1))
        s = gru_states(self.seg_update, runs.means(last.frames)).relu()  # [R, hidden]
        s, logits = split(self.seg_combine(s), self.classes)
        a, f2a = self.f2a_layer(s, last.tokens, y_position=query)
        a, token_logits = split(self.action_branch(a, query), self.classes + 1)
        s, a2f = self.a2f_layer(a, s, x_position=query)  # [R, frame_dim]
        x = self.merged(s, last.frames, runs)
        x, frame_logits = split(self.frame_branch(x), self.classes)
        return BlockOutput(frame_logits, token_logits, Exchange(f2a, a2f, runs, logits), x, a)

    def merged(self, s: Tensor, x: Tensor, runs: Runs) -> Tensor:
        """Return sf_merge(concat[s of the frame's run, x]) [T, frame_dim]; s is mapped as runs."""
        layer = cast(nn.Linear, self.sf_merge[0])
        from_run, from_frame = layer.weight.tensor_split([s.shape[-1]], dim=1)
        return (runs.spread(linear(s, from_run)) + linear(x, from_frame, layer.bias)).relu()
