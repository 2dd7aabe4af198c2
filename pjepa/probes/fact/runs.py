"""Runs of equal label along a take, and what block U does with them; of one take or of several.

Several takes are padded on the right: [B, T, C] and `padding` bool [B, T] says where.
Both classes offer the same, so that block U is written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pjepa.probes.fact.recurrent import gru_states


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
