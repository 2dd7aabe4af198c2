"""Batches on their way to the device, several steps ahead and across epochs.

| device | `machine.stream` | where tokens wait       | what the host does for a batch             |
|--------|------------------|-------------------------|--------------------------------------------|
| CPU    | any              | the memory-mapped file  | widens them to float32                     |
| other  | `device`         | all on the device       | sends their row numbers                    |
| other  | `host`           | all in pinned memory    | says which rows the device copies          |
| other  | `file`           | the memory-mapped file  | copies them to pinned memory, sends them   |

They stay as stored up to the device. `auto` is `device`, else `host`, where they take no more than
`SHARE` of the free memory, after the model is there; else `file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pjepa.core.machine import Stream
from pjepa.model.objective import Batch
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import (
    TakeView,
    TokenPacking,
    TrainingTake,
    epoch_steps,
    forward_passes,
    pack,
)
from pjepa.pretrain.exchange import Exchange
from pjepa.pretrain.team import Team
from pjepa.ui.device import host_memory
from pjepa.ui.transfer import host_buffer, pinned_bytes, sent

SHARE = 0.25  # of free memory that the whole stream may take


class SentTokens(TokenPacking):
    """Tokens copied for every batch at the stream's own precision, widened on the device.

    The copy is all it costs: 16,384 x 2048 tokens at the speed of the memory.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def packed(self, views: Sequence[TakeView], d_in: int) -> Tensor:
        buffer = host_buffer((sum(map(len, views)), d_in), self.dtype, self.device)
        if views:
            pieces = [piece.features() for shown in views for piece in shown.pieces]
            np.concatenate(pieces, out=buffer.numpy())
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
        for piece in (piece for shown in views for piece in shown.pieces):
            rows.append(self.first[piece.take.number] + np.arange(piece.start, piece.stop))
        there = sent(torch.from_numpy(np.concatenate(rows)), self.device)
        return self.table.index_select(0, there).float()


class PinnedTokens(TokenPacking):
    """All takes in page-locked memory of the host, from where the device copies them by itself."""

    def __init__(self, device: torch.device, takes: Sequence[TrainingTake]) -> None:
        self.device, self.takes = device, {}
        for take in takes:
            held = host_buffer(take.features.shape, stored_dtype(takes), device)
            held.numpy()[:] = take.features
            self.takes[take.number] = held

    def packed(self, views: Sequence[TakeView], d_in: int) -> Tensor:
        parts = [
            sent(self.takes[piece.take.number][piece.start : piece.stop], self.device)
            for shown in views
            for piece in shown.pieces
        ]
        return torch.cat([torch.zeros(0, d_in, device=self.device), *parts])


def stored_dtype(takes: Sequence[TrainingTake]) -> torch.dtype:
    """Return the precision of the stream."""
    return torch.from_numpy(np.zeros(0, takes[0].features.dtype)).dtype


def free_bytes(device: torch.device) -> int:
    """Return free memory of a device, as far as it tells."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def roomiest(device: torch.device, takes: Sequence[TrainingTake], processes: int) -> Stream:
    """Return what `auto` means for these takes; every process of a host pins its own copy."""
    sizes = [take.features.nbytes for take in takes]
    if sum(sizes) <= SHARE * free_bytes(device):
        return "device"
    return "host" if processes * pinned_bytes(sizes) <= SHARE * host_memory() else "file"


def tokens_for(
    device: torch.device, takes: Sequence[TrainingTake], stream: Stream, processes: int
) -> TokenPacking:
    """Return how the tokens of these takes reach a device (table above)."""
    if device.type == "cpu":
        return TokenPacking()
    if stream == "auto":
        stream = roomiest(device, takes, processes)
    if stream == "file":
        return SentTokens(device, stored_dtype(takes))
    return (KeptTokens if stream == "device" else PinnedTokens)(device, takes)


def feed(
    takes: Sequence[TrainingTake], config: PjepaConfig, team: Team, epoch: int, done: int
) -> Iterator[tuple[list[Batch], bool]]:
    """Yield (a step's forward passes on the device, whether it ends its epoch) from `done` on."""
    device = torch.device(config.device)
    tokens = tokens_for(device, takes, config.stream, team.size)
    d_in = takes[0].features.shape[1]
    exchange = None
    if config.exchange:
        settings = (config.exchange, config.seed, config.centres_takes())
        exchange = Exchange(takes, *settings, config.device)
    while epoch < config.epochs:
        steps = epoch_steps(takes, epoch, config, exchange)
        for number, views in enumerate(steps[done:], start=done + 1):
            passes = forward_passes(team.share(views), config) or [[]]
            packed = [pack(part, epoch, config, d_in, tokens).to(device) for part in passes]
            yield packed, number == len(steps)
        epoch, done = epoch + 1, 0
