"""The three kinds of block: input (i), update (u), update over predicted runs (U).

A block's branches return `hidden` channels whose last C (frames, runs) or C + 1 (tokens; the last
one is the null class) are class logits; there is no other classifier. In the features that flow
on, those channels hold their softmax.

Several takes go through together as [B, T, C], padded on the right; `padding` bool [B, T] says
where. What stands there is never looked at, so each take gives what it gives alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pjepa.probes.fact.branches import (
    OneHeadCrossAttention,
    SelfBranch,
    SelfCrossBranch,
    frame_branch,
)
from pjepa.probes.fact.config import FactConfig

# The GRU over predicted runs, fast for one long sequence on a CPU.

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of torch.nn.GRU


class Recurrence(torch.autograd.Function):
    """States h [R, 2, H] after each step from i [R, 2, 3H], W_h [2, 3H, H] and b_h [2, 3H]."""

    @staticmethod
    def forward(ctx: Any, i: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps, width = len(i), i.shape[2] // 3
        rz, n = (part.clone() for part in i.tensor_split([2 * width], dim=2))
        (r, z), h_n = rz.chunk(2, dim=2), torch.empty_like(n)
        states = i.new_zeros(steps + 1, 2, width)  # the first one is the empty start
        columns, bias = weight.transpose(1, 2).contiguous(), bias[:, None]
        rows = zip(rz, r, z, n, h_n, states[:-1], states[1:], strict=True)  # views of one step
        for rz_t, r_t, z_t, n_t, h_n_t, before, after in rows:
            gates = torch.baddbmm(bias, before[:, None], columns)[:, 0]  # [2, 3H]
            h_n_t.copy_(gates[:, 2 * width :])
            rz_t.add_(gates[:, : 2 * width]).sigmoid_()
            n_t.addcmul_(r_t, h_n_t).tanh_()
            torch.lerp(n_t, before, z_t, out=after)
        ctx.save_for_backward(rz, n, h_n, states, weight)
        return states[1:].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rz, n, h_n, states, weight = ctx.saved_tensors
        (r, z), before = rz.chunk(2, dim=2), states[:-1]
        to_n = (1 - z).mul_(1 - n * n)  # d h' / d (the argument of tanh)
        slope = n.new_empty(*n.shape[:2], 3, n.shape[2])  # d h' / d (W_h h + b_h) [R, 2, 3, H]
        torch.mul(to_n, h_n, out=slope[:, :, 0]).mul_(r).mul_(1 - r)
        torch.sub(before, n, out=slope[:, :, 1]).mul_(z).mul_(1 - z)
        torch.mul(to_n, r, out=slope[:, :, 2])
        h_grad, carried = grads[0].clone(), torch.zeros_like(n[0])
        rows = (reversed(part.unbind()) for part in (h_grad, slope, z))  # views, last step first
        for grad_t, slope_t, z_t in zip(*rows, strict=True):
            grad_t.add_(carried)
            gates = (grad_t[:, None] * slope_t).view(2, 1, -1)  # [2, 1, 3H]
            carried = torch.baddbmm((grad_t * z_t)[:, None], gates, weight)[:, 0]
        gates = slope.mul_(h_grad[:, :, None]).flatten(2)  # [R, 2, 3H]
        weight_grad = torch.einsum("rdg,rdh->dgh", gates, before)
        bias_grad = gates.sum(0)
        torch.mul(h_grad, to_n, out=gates[..., -n.shape[2] :])  # from here on the gradient of i
        return gates, weight_grad, bias_grad


def gru_states(gru: nn.GRU, x: Tensor) -> Tensor:
    """Return the states [R, 2H] of the bidirectional `gru` over the sequence x [R, C]."""
    if x.is_cuda:  # cuDNN has this fused
        return gru(x)[0]
    for layer in range(gru.num_layers):
        forth, back = (
            [getattr(gru, f"{part}_l{layer}{end}") for part in PARTS] for end in ("", "_reverse")
        )
        both = (linear(x, forth[0], forth[2]), linear(x, back[0], back[2]).flip(0))  # [R, 3H] each
        i = torch.stack(both, dim=1)
        del both  # as large as what a layer keeps
        weight, bias = torch.stack([forth[1], back[1]]), torch.stack([forth[3], back[3]])
        h = Recurrence.apply(i, weight, bias)  # [R, 2, H]
        x = torch.cat([h[:, 0], h[:, 1].flip(0)], dim=1)
    return x


# Runs of equal label along a take, and what block U does with them; of one take or of several.


class FrameRuns(NamedTuple):
    """Maximal runs of equal label along the take."""

    labels: Tensor  # [R]
    of_frame: Tensor  # [T] index of the frame's run
    lengths: Tensor  # [R]

    @property
    def padding(self) -> None:
        """Return None: no run is padding."""
        return

    def middles(self) -> Tensor:
        """Return the middle frame of every run [R]."""
        ends = self.lengths.cumsum(0)
        return (2 * ends - self.lengths - 1) // 2

    def positions(self, table: Tensor) -> Tensor:
        """Return the rows of `table` [T, P] at the middle of every run [R, P]."""
        return table[self.middles()]

    def means(self, frames: Tensor) -> Tensor:
        """Return the mean of the frames [T, C] of every run [R, C]."""
        return torch.segment_reduce(frames, "mean", lengths=self.lengths)

    def states(self, gru: nn.GRU, x: Tensor) -> Tensor:
        """Return the states [R, 2 H] of a bidirectional GRU along the runs x [R, C]."""
        return gru_states(gru, x)

    def spread(self, x: Tensor) -> Tensor:
        """Return for every frame the row of its run in x [R, C]: [T, C]."""
        return x[self.of_frame]


@dataclass(frozen=True)
class PaddedRuns:
    """Runs of B takes, padded: every tensor of runs is [B, R, C]."""

    flat: FrameRuns  # of all takes in one row; the padding of a take is a run at its end
    cell: Tensor  # [runs of flat] where a run lies in [B * R]
    of_frame: Tensor  # [B, T] index of the frame's run in its take
    counts: Tensor  # [B] runs of every take without padding, on the host
    padding: Tensor  # [B, R] where a run is padding

    def positions(self, table: Tensor) -> Tensor:
        return self._padded(table[self.flat.middles() % self.of_frame.shape[1]])

    def means(self, frames: Tensor) -> Tensor:
        return self._padded(self.flat.means(frames.flatten(0, 1)))

    def states(self, gru: nn.GRU, x: Tensor) -> Tensor:
        rows = pack_padded_sequence(x, self.counts, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(gru(rows)[0], batch_first=True, total_length=x.shape[1])[0]

    def spread(self, x: Tensor) -> Tensor:
        return x.take_along_dim(self.of_frame[..., None], 1)

    def _padded(self, x: Tensor) -> Tensor:
        """Return rows of `flat`'s runs as [B, R, C]."""
        whole = x.new_zeros(self.padding.numel(), x.shape[1])
        return whole.index_copy(0, self.cell, x).unflatten(0, self.padding.shape)


Runs = FrameRuns | PaddedRuns


def runs_of(labels: Tensor) -> FrameRuns:
    """Return the runs of labels [T], on their device."""
    return FrameRuns(*torch.unique_consecutive(labels, return_inverse=True, return_counts=True))


def padded_runs(labels: Tensor, padding: Tensor, classes: int) -> PaddedRuns:
    """Return the runs of labels [B, T] below `classes`; padding belongs to no real run."""
    take = torch.arange(len(labels), device=labels.device)
    own = torch.where(padding, classes, labels) + (classes + 1) * take[:, None]  # [B, T]
    flat = runs_of(own.flatten())
    run = flat.of_frame.unflatten(0, labels.shape)
    first = run[:, 0]
    of_frame = run - first[:, None]
    counts = of_frame.masked_fill(padding, 0).amax(1) + 1
    on_host = counts.cpu()
    columns = torch.arange(int(on_host.max()) + 1, device=labels.device)  # one more for padding
    owner = flat.labels // (classes + 1)
    cell = owner * len(columns) + torch.arange(len(owner), device=labels.device) - first[owner]
    return PaddedRuns(flat, cell, of_frame, on_host, columns >= counts[:, None])


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
        self.frame_branch = frame_branch(config, config.frame_layers, width)
        self.action_branch = SelfCrossBranch(config)

    def forward(
        self, x: Tensor, query: Tensor, position: Tensor | None, padding: Tensor | None = None
    ) -> BlockOutput:
        """Return the block's output for features x [T, D]."""
        x, frame_logits = split(self.frame_branch(x, padding), self.classes)
        a, token_logits = split(self.action_branch(query, x, position, padding), self.classes + 1)
        return BlockOutput(frame_logits, token_logits, None, x, a)


class UpdateBlock(nn.Module):
    """Block `u`: tokens attend to frames, then to each other, and frames attend to tokens."""

    def __init__(self, config: FactConfig, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.frame_branch = frame_branch(config, config.update_frame_layers)
        self.f2a_layer = OneHeadCrossAttention(config, config.action_dim)
        self.action_branch = SelfBranch(config)
        self.a2f_layer = OneHeadCrossAttention(config, config.frame_dim)

    def forward(
        self,
        last: BlockOutput,
        query: Tensor,
        position: Tensor | None,
        padding: Tensor | None = None,
    ) -> BlockOutput:
        """Return the block's output after the block `last`."""
        a, f2a = self.f2a_layer(last.frames, last.tokens, position, query, padding)
        a, token_logits = split(self.action_branch(a, query), self.classes + 1)
        x, a2f = self.a2f_layer(a, last.frames, query, position)  # [T, frame_dim]
        x, frame_logits = split(self.frame_branch(x, padding), self.classes)
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

    def forward(
        self,
        last: BlockOutput,
        query: Tensor,
        position: Tensor | None,
        padding: Tensor | None = None,
    ) -> BlockOutput:
        """Return the block's output after the block `last`."""
        runs = self.runs(last.frames.detach(), padding)
        s = runs.states(self.seg_update, runs.means(last.frames)).relu()  # [R, hidden]
        s, logits = split(self.seg_combine(s), self.classes)
        position = None if position is None else runs.positions(position)
        a, f2a = self.f2a_layer(s, last.tokens, position, query, runs.padding)
        a, token_logits = split(self.action_branch(a, query), self.classes + 1)
        s, a2f = self.a2f_layer(a, s, query, position)  # [R, frame_dim]
        x = self.merged(s, last.frames, runs)
        x, frame_logits = split(self.frame_branch(x, padding), self.classes)
        return BlockOutput(frame_logits, token_logits, Exchange(f2a, a2f, runs, logits), x, a)

    def runs(self, frames: Tensor, padding: Tensor | None) -> Runs:
        """Return the runs of the most probable class of frames [T, hidden]."""
        labels = frames[..., -self.classes :].argmax(-1)
        return runs_of(labels) if padding is None else padded_runs(labels, padding, self.classes)

    def merged(self, s: Tensor, x: Tensor, runs: Runs) -> Tensor:
        """Return sf_merge(concat[s of the frame's run, x]) [T, frame_dim]; s is mapped as runs."""
        layer = cast(nn.Linear, self.sf_merge[0])
        from_run, from_frame = layer.weight.tensor_split([s.shape[-1]], dim=1)
        return (runs.spread(linear(s, from_run)) + linear(x, from_frame, layer.bias)).relu()
