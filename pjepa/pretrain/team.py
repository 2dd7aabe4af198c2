"""Who trains: one process, or the ranks of `distributed.py`, behind the same few questions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TakeView
from pjepa.ui.console import InputError


class Team:
    """One process: it leads, and every share is the whole."""

    lead = True
    size = 1

    def share(self, views: Sequence[TakeView]) -> Sequence[TakeView]:
        """Return the part of a step this process works on."""
        return views

    def total(self, value: float) -> float:
        """Return the sum of a number over the team."""
        return value

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over the team, where it lies."""
        return values

    def gathered(self, targets: Tensor) -> Tensor:
        """Return everybody's targets [M, d], in the step's order."""
        return targets

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Return the model to call; its backward leaves the team's summed gradient."""
        return model

    def passing(self, last: bool) -> AbstractContextManager[object]:
        """Wrap one forward and backward pass; gradients are exchanged in the step's last."""
        return nullcontext()


# Many devices: the ranks of `torchrun` share every step (DDP; gloo on the CPU, nccl on CUDA).


def launched() -> bool:
    """Return whether this process is a rank of `torchrun` already."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch(module: str, config: PjepaConfig) -> None:
    """Run `python -m module` as `config.processes` ranks and wait for them."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(config.processes), "-m", module,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": str(config.threads)}
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise InputError(f"a process of {module} ended with code {code}; see its message above")


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """Yield this process's place in the team."""
    kind = torch.device(device).type
    if kind == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Ranks(device)
    finally:
        dist.destroy_process_group()


def balanced_parts(lengths: Sequence[int], parts: int) -> list[slice]:
    """Return contiguous slices of about equal summed length; some may be empty."""
    ends = np.cumsum(lengths)
    middle = ends - np.asarray(lengths) / 2
    owner = np.floor(middle * parts / max(1, int(ends[-1]) if len(ends) else 1))
    cuts = np.searchsorted(owner, np.arange(parts + 1))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


class Ranks(Team):
    """The processes of one `torchrun`."""

    def __init__(self, device: str) -> None:
        self.rank, self.size, self.device = dist.get_rank(), dist.get_world_size(), device
        self.lead = self.rank == 0
        self.model: DistributedDataParallel | None = None

    @contextmanager
    def folder(self, owned: AbstractContextManager[Path]) -> Iterator[Path]:
        """Yield a folder that the first rank owns; it stays until all ranks are done."""
        shared: list[Path | None] = [None]
        with owned if self.lead else nullcontext() as path:
            shared[0] = path
            dist.broadcast_object_list(shared)
            yield Path(str(shared[0]))
            dist.barrier()

    @contextmanager
    def first(self) -> Iterator[None]:
        """Run the block on the first rank alone, then on the others."""
        if not self.lead:
            dist.barrier()
        yield
        if self.lead:
            dist.barrier()

    def share(self, views: Sequence[TakeView]) -> Sequence[TakeView]:
        part = balanced_parts([len(v) for v in views], self.size)[self.rank]
        return views[part]

    def total(self, value: float) -> float:
        # Exact for counts; on nccl the tensor has to lie on the device.
        summed = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return float(summed)

    def summed(self, values: Tensor) -> Tensor:
        dist.all_reduce(values)
        return values

    def gathered(self, targets: Tensor) -> Tensor:
        found: list[Tensor | None] = [None] * self.size
        dist.all_gather_object(found, targets.cpu())
        return torch.cat([part for part in found if part is not None])

    def wrapped(self, model: nn.Module) -> nn.Module:
        self.model = DistributedDataParallel(model, broadcast_buffers=False)
        return self.model

    def passing(self, last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last or self.model is None else self.model.no_sync()
