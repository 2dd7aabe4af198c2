"""Batches on their way to the device, several steps ahead and across epochs.

| device | `machine.stream` | where tokens wait       | what the host does for a batch             |
|--------|------------------|-------------------------|--------------------------------------------|
| CPU    | any              | the memory-mapped file  | copies them                                |
| other  | `device`         | all on the device       | sends their row numbers                    |
| other  | `file`           | the memory-mapped file  | copies them to pinned memory, sends them   |

They stay as stored up to the device, which widens them to float32. `auto` is `device` where they
take no more than `SHARE` of its free memory, after the model is there; else `file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pjepa.core.machine import Stream
from pjepa.model.objective import Batch
from pjepa.pretrain import team
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import Piece, Tokens, TrainingTake, epoch_steps, forward_passes, pack
from pjepa.pretrain.exchange import Exchange
from pjepa.ui.transfer import host_buffer, sent

SHARE = 0.25  # of free memory that the whole stream may take


class FileTokens:
    """Tokens copied from the file for every batch.

    The copy is all it costs: 16,384 x 2048 tokens at the speed of the memory.
    """

    def __init__(self, takes: Sequence[TrainingTake], device: torch.device) -> None:
        self.device, self.d_in, self.dtype = device, takes[0].features.shape[1], _dtype(takes)

    def __call__(self, pieces: Sequence[Piece]) -> Tensor:
        buffer = host_buffer((sum(map(len, pieces)), self.d_in), self.dtype, self.device)
        if pieces:
            np.concatenate([piece.features() for piece in pieces], out=buffer.numpy())
        return sent(buffer, self.device).float()


class DeviceTokens:
    """All takes on the device."""

    def __init__(self, takes: Sequence[TrainingTake], device: torch.device) -> None:
        lengths = [len(take.features) for take in takes]
        self.device, self.first = device, {}
        shape = (sum(lengths), takes[0].features.shape[1])
        self.table = torch.empty(shape, dtype=_dtype(takes), device=device)
        for take, end in zip(takes, np.cumsum(lengths).tolist(), strict=True):
            self.first[take.number] = end - len(take.features)
            self.table[end - len(take.features) : end] = torch.tensor(take.features).to(device)

    def __call__(self, pieces: Sequence[Piece]) -> Tensor:
        rows = [np.zeros(0, np.int64)]
        for piece in pieces:
            rows.append(self.first[piece.take.number] + np.arange(piece.start, piece.stop))
        index = sent(torch.from_numpy(np.concatenate(rows)), self.device)
        return self.table.index_select(0, index).float()


def _dtype(takes: Sequence[TrainingTake]) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, takes[0].features.dtype)).dtype


def free_bytes(device: torch.device) -> int:
    """Return free memory of a device, as far as it tells."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def choose_placement(device: torch.device, takes: Sequence[TrainingTake], stream: Stream) -> Tokens:
    """Return how the tokens of these takes reach a device (table above)."""
    if stream == "auto":
        size = sum(take.features.nbytes for take in takes)
        stream = "device" if size <= SHARE * free_bytes(device) else "file"
    if device.type == "cpu" or stream == "file":
        return FileTokens(takes, device)
    return DeviceTokens(takes, device)


def feed(
    takes: Sequence[TrainingTake],
    config: PjepaConfig,
    exchange: Exchange | None,
    epoch: int,
    done: int,
) -> Iterator[tuple[list[Batch], bool]]:
    """Yield (a step's forward passes on the device, whether it ends its epoch).

    Begins in `epoch`, of which `done` steps are done.
    """
    device = torch.device(config.device)
    tokens = choose_placement(device, takes, config.stream)
    while epoch < config.epochs:
        steps = epoch_steps(takes, epoch, config, exchange)
        for number, views in enumerate(steps[done:], start=done + 1):
            passes = forward_passes(team.share(views), config) or [[]]
            batches = [pack(each, epoch, config, tokens).to(device) for each in passes]
            yield batches, number == len(steps)
        epoch, done = epoch + 1, 0
