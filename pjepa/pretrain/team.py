"""Who trains: this process alone, or the ranks of `torchrun`, which share every step.

DDP averages their gradients; gloo on the CPU, nccl on CUDA. A process alone leads, its share is the
whole, and a sum over the team is its own value.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pjepa.pretrain.config import PjepaConfig
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    from pjepa.pretrain.data import TakeView


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
def joined(config: PjepaConfig) -> Iterator[PjepaConfig]:
    """Join the team of `config.processes`; yield the settings with this process's own device."""
    if config.processes == 1:
        yield config
        return
    cuda = torch.device(config.device).type == "cuda"
    if cuda:
        config = config.model_copy(update={"device": f"cuda:{os.environ['LOCAL_RANK']}"})
        torch.cuda.set_device(config.device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield config
    finally:
        dist.destroy_process_group()


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def leads() -> bool:
    """Return whether this process writes what the team makes."""
    return not dist.is_initialized() or dist.get_rank() == 0


@contextmanager
def folder(owned: AbstractContextManager[Path]) -> Iterator[Path]:
    """Yield a folder that the leader owns; it stays until all are done."""
    with owned if leads() else nullcontext() as path:
        shared = [path]
        if size() > 1:
            dist.broadcast_object_list(shared)
        yield Path(str(shared[0]))
        wait_for_all()


@contextmanager
def leader_first() -> Iterator[None]:
    """Run the block on the leader alone, then on the others."""
    if not leads():
        wait_for_all()
    yield
    if leads():
        wait_for_all()


def wait_for_all() -> None:
    """Wait until all processes are here."""
    if size() > 1:
        dist.barrier()


def share(views: Sequence[TakeView]) -> Sequence[TakeView]:
    """Return the part of a step that this process works on."""
    own = dist.get_rank() if size() > 1 else 0
    return views[balanced_parts([len(each) for each in views], size())[own]]


def balanced_parts(lengths: Sequence[int], parts: int) -> list[slice]:
    """Return contiguous slices of about equal summed length; some may be empty."""
    ends = np.cumsum(lengths)
    middle = ends - np.asarray(lengths) / 2
    owner = np.floor(middle * parts / max(1, int(ends[-1]) if len(ends) else 1))
    cuts = np.searchsorted(owner, np.arange(parts + 1))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


def summed(values: Tensor) -> Tensor:
    """Return the sum of a tensor over the team, where it lies."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def gathered(targets: Tensor) -> Tensor:
    """Return everybody's targets [M, d], in the step's order."""
    if size() == 1:
        return targets
    parts: list[Tensor | None] = [None] * size()
    dist.all_gather_object(parts, targets.cpu())
    return torch.cat([part for part in parts if part is not None])


def wrapped(model: nn.Module) -> nn.Module:
    """Return the model to call; its backward leaves the team's mean gradient."""
    return DistributedDataParallel(model, broadcast_buffers=False) if size() > 1 else model


def gradient_sync(model: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Wrap one forward and backward pass; gradients are exchanged in the step's last."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()
