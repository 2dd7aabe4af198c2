"""Attention over keys and values of earlier calls: what a stream keeps of its past.

Clip-causal and block-causal attention never revise a finished block, so a layer's keys and values
of finished tokens stay as they are and are computed once. Keys are stored turned by RoPE at their
own, absolute positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.encoder.attention.plan import of_one_dtype

LEAST = 64  # tokens a buffer holds at least


class KeyValues:
    """Keys and values of one layer in a buffer that doubles: appending n tokens costs O(n).

    The buffer is at most twice what it had to hold at its fullest.
    """

    def __init__(self) -> None:
        self.buffer: Tensor | None = None  # [2, capacity, heads, d_h]
        self.first = self.last = 0  # the part in use

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def kept(self) -> Tensor:
        """Return the keys and values held, [2, T, heads, d_h]."""
        assert self.buffer is not None
        return self.buffer[:, self.first : self.last]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole buffer."""
        return 0 if self.buffer is None else self.buffer.nbytes

    def append(self, keys: Tensor, values: Tensor) -> Tensor:
        """Add tokens [n, heads, d_h]; return all that is kept, [2, T, heads, d_h]."""
        count = len(keys)
        self._make_room(count, keys)
        assert self.buffer is not None
        torch.stack((keys, values), out=self.buffer[:, self.last : self.last + count])
        self.last += count
        return self.kept

    def drop_newest(self, count: int) -> None:
        """Remove the tokens appended last."""
        self.last -= count

    def trim(self, count: int) -> None:
        """Forget all but the newest `count` tokens."""
        self.first = max(self.first, self.last - count)

    def _make_room(self, count: int, like: Tensor) -> None:
        capacity = 0 if self.buffer is None else self.buffer.shape[1]
        if self.buffer is not None and self.last + count <= capacity:
            return
        held, target = len(self), self.buffer
        # Else the free front is at least as long as what is held.
        if target is None or 2 * (held + count) > capacity:
            size = max(LEAST, 2 * (held + count))
            target = like.new_empty(2, size, *like.shape[1:])
        if held:
            target[:, :held] = self.kept
        self.buffer, self.first, self.last = target, 0, held


@dataclass(frozen=True, eq=False)
class Cached:
    """One layer's attention in a stream: new tokens see what is kept, and each other by `mask`.

    `mask` bool [n, T] is True where a query may look; None: everywhere.
    """

    past: KeyValues
    mask: Tensor | None
    rows: None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention of the new tokens [n, heads, d_h], which are appended."""
        q, k, v = of_one_dtype(q, k, v)
        keys, values = self.past.append(k, v)
        q = q.to(keys.dtype)  # autocast may have begun or ended since the buffer was made
        return cached_attend(q, keys, values, self.mask).to(v.dtype)


def cached_attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention [n, heads, d_h] of q over keys and values [T, heads, d_h]."""
    q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))  # [1, heads, T, d_h]
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return out[0].transpose(0, 1)
