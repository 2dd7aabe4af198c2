"""The CUDA kernel: FlexAttention over tiles of 128 queries x 128 keys.

Every token sees one interval of keys [first, last), and both ends only grow along the batch.
So a tile of queries sees one interval too, and which tiles are empty, whole or partial follows
from its first and last token: no N x N mask is ever built. N changes with every batch; it is
filled up to whole tiles, so that one compiled kernel serves all batches.

FlexAttention is imported where it is used: it brings in torch's compiler, more than a second that
a process on the CPU has no use for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

TILE = 128
LEAST_WIDTH = 16  # of a head; narrower ones are filled up with zeros
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_usable(x: Tensor) -> bool:
    """Return whether FlexAttention can be compiled for this tensor."""
    return x.device.type == "cuda" and x.dtype in TYPES and _has_compiler()


@cache
def _has_compiler() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def compiled() -> Callable[..., Any]:
    """Return FlexAttention, compiled once for any number of tokens."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


def visible_to(first: Tensor, last: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return FlexAttention's mask function: is the key in the query's [first, last)?"""

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (first[query] <= key) & (key < last[query])

    return visible


def tiles_of(first: Tensor, last: Tensor) -> BlockMask:
    """Return the block mask of tokens that see keys [first, last) [N], padded to whole tiles."""
    from torch.nn.attention.flex_attention import BlockMask

    count = len(first)
    size = TILE * max(2, -(-count // TILE))  # a single tile would be compiled as a case of its own
    first = F.pad(first, (0, size - count), value=count).int()  # filling sees itself
    last = F.pad(last, (0, size - count), value=size).int()
    start = torch.arange(0, size, TILE, device=first.device)  # [tiles] of keys
    touched = (first[::TILE, None] < start + TILE) & (start < last[TILE - 1 :: TILE, None])
    whole = (first[TILE - 1 :: TILE, None] <= start) & (start + TILE <= last[::TILE, None])
    return BlockMask.from_kv_blocks(
        *_listed(touched & ~whole),
        *_listed(whole),
        BLOCK_SIZE=TILE,
        mask_mod=visible_to(first, last),
        seq_lengths=(size, size),
    )


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many tiles are set in every row, and which: those first (bool [tiles, tiles])."""
    order = tiles.int().argsort(dim=1, descending=True, stable=True)
    return tiles.sum(1).int()[None, None], order.int()[None, None]


def kernel_width(width: int) -> int:
    """Return the width of the kernel for heads of so many channels: the next power of two.

    The kernel computes on that many anyway; only for those are its tiles tuned. At 88 (1408 / 16)
    the generic ones ask for more shared memory than an A100 or a 4090 has.
    """
    return max(LEAST_WIDTH, 1 << (width - 1).bit_length())


def flex_attend(q: Tensor, k: Tensor, v: Tensor, tiles: BlockMask) -> Tensor:
    """Return the attention of packed q, k, v [N, heads, d_h] -> [N, heads, d_h]."""
    count, _, width = q.shape
    filling = (0, kernel_width(width) - width, 0, 0, 0, tiles.seq_lengths[0] - count)
    q, k, v = (F.pad(x, filling).transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, size, d]
    out: Tensor = compiled()(q, k, v, block_mask=tiles, scale=width**-0.5)
    return out[0].transpose(0, 1)[:count, :, :width]
