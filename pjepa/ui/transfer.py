"""Copies to a device that the host does not wait for, beside what it computes.

CUDA copies by itself only from page-locked memory; from any other the host waits until it is done.
torch keeps such memory until the copy has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def host_buffer(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return empty host memory that `device` can copy from by itself."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor in memory that `device` can copy from by itself."""
    return x.pin_memory() if device.type == "cuda" and not x.is_cuda else x


def sent(x: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on a device; the copy may still be under way."""
    there = torch.device(device)
    if x.device.type != "cpu" or there.type == "cpu":
        return x.to(there)
    return pinned(x, there).to(there, non_blocking=True)


@dataclass(frozen=True)
class ReadyItem(Generic[Item]):
    """An item that is on its way to the device, and the event after which its tensors are there."""

    item: Item
    event: Any


class CopyStream:
    """A stream of the device for another thread: its copies run while the main one computes.

    Where the device has no streams, items pass through.
    """

    def __init__(self, device: torch.device) -> None:
        self.module: Any = torch.get_device_module(device)
        plain = device.type == "cpu" or not hasattr(self.module, "Stream")
        self.stream = None if plain else self.module.Stream(device)

    def prepare(self, items: Iterable[Item]) -> Iterator[ReadyItem[Item]]:
        """Yield the items, made one by one on this stream; to be run on the other thread."""
        left = iter(items)
        while True:
            with self._entered():
                item = next(left, None)
                event = None if self.stream is None else self.stream.record_event()
            if item is None:
                return
            yield ReadyItem(item, event)

    def receive(self, ready: ReadyItem[Item]) -> Item:
        """Return the item for what follows; the device waits for it, the host does not.

        Its memory is not used again by this stream before the present one is done with it.
        """
        if ready.event is not None:
            present = self.module.current_stream()
            present.wait_event(ready.event)
            for x in _tensors(ready.item):
                if x.is_cuda:
                    x.record_stream(present)
        return ready.item

    def _entered(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.stream is None else self.module.stream(self.stream)


def _tensors(value: object) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples, lists and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
