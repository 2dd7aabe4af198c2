"""Batches on their way to the device, several steps ahead and across epochs.

| device | where tokens wait                              | what is copied per batch             |
|--------|------------------------------------------------|--------------------------------------|
| CPU    | the memory-mapped stream                       | tokens, widened to float32           |
| other  | all of them on the device, if they fit (below) | their row numbers                    |
| other  | the memory-mapped stream                       | tokens as stored, from pinned memory |

They fit if they take no more than `SHARE` of the device's free memory, after the model is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import (
    TakeView,
    TokenPacking,
    TrainingTake,
    epoch_steps,
    forward_passes,
    pack,
)
from pjepa.pretrain.objective import Batch
from pjepa.pretrain.team import Team
from pjepa.ui.transfer import host_buffer, sent

SHARE = 0.25  # of the free memory of a device that the whole stream may take


class SentTokens(TokenPacking):
    """Tokens copied for every batch at the stream's own precision, widened on the device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def packed(self, views: Sequence[TakeView], d_in: int) -> Tensor:
        buffer = host_buffer((sum(map(len, views)), d_in), self.dtype, self.device)
        if views:
            np.concatenate([shown.features() for shown in views], out=buffer.numpy())
        return sent(buffer, self.device).float()


class KeptTokens(TokenPacking):
    """All takes on the device, at the stream's own precision."""

    def __init__(self, device: torch.device, takes: Sequence[TrainingTake]) -> None:
        self.device, self.first, count = device, {}, 0
        for take in takes:
            self.first[take.number], count = count, count + len(take.features)
        dtype = stored_dtype(takes)
        self.table = torch.empty(count, takes[0].features.shape[1], dtype=dtype, device=device)
        for take in takes:
            first = self.first[take.number]
            self.table[first : first + len(take.features)] = torch.tensor(take.features).to(device)

    def packed(self, views: Sequence[TakeView], d_in: int) -> Tensor:
        rows = [np.zeros(0, np.int64)]
        rows += [self.first[shown.take.number] + shown.places() for shown in views]
        there = sent(torch.from_numpy(np.concatenate(rows)), self.device)
        return self.table.index_select(0, there).float()


def stored_dtype(takes: Sequence[TrainingTake]) -> torch.dtype:
    """Return the precision of the stream."""
    return torch.from_numpy(np.zeros(0, takes[0].features.dtype)).dtype


def free_bytes(device: torch.device) -> int:
    """Return free memory of a device, as far as it tells."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def tokens_for(device: torch.device, takes: Sequence[TrainingTake]) -> TokenPacking:
    """Return how the tokens of these takes reach a device (table above)."""
    if device.type == "cpu":
        return TokenPacking()
    if sum(take.features.nbytes for take in takes) <= SHARE * free_bytes(device):
        return KeptTokens(device, takes)
    return SentTokens(device, stored_dtype(takes))


def feed(
    takes: Sequence[TrainingTake], config: PjepaConfig, team: Team, epoch: int, done: int
) -> Iterator[tuple[list[Batch], bool]]:
    """Yield (a step's forward passes on the device, whether it ends its epoch) from `done` on."""
    device = torch.device(config.device)
    tokens, d_in = tokens_for(device, takes), takes[0].features.shape[1]
    while epoch < config.epochs:
        steps = epoch_steps(takes, epoch, config)
        for number, views in enumerate(steps[done:], start=done + 1):
            passes = forward_passes(team.share(views), config) or [[]]
            packed = [pack(part, epoch, config, d_in, tokens).to(device) for part in passes]
            yield packed, number == len(steps)
        epoch, done = epoch + 1, 0
