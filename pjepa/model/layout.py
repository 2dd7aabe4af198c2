"""Where every packed token lies: in which take, segment and place (packed, never padded).

A batch is whole takes laid end to end. Attention modes are one rule, `key block <= query block`,
with different block ids (design of Eq. 3):

| mode            | block of token i          | may see                                        |
|-----------------|---------------------------|------------------------------------------------|
| `clip_causal`   | its segment c(i)          | its whole segment and everything before (paper) |
| `block_causal`  | index // `block`          | its fixed window and everything before          |
| `token_causal`  | its index                 | itself and everything before                    |
| `bidirectional` | 0                         | the whole take                                  |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Coordinates of N packed tokens. Tokens of a take are contiguous and in time order."""

    take_lengths: tuple[int, ...]
    segment: Tensor  # [N] c(i), counted from 0 in each take
    offset: Tensor  # [N] r(i)
    index: Tensor  # [N] place in the whole take, also when only some tokens are kept

    def subset(self, keep: Tensor) -> Layout:
        """The kept tokens only (bool [N]), at their original coordinates."""
        parts = torch.split(keep, list(self.take_lengths))
        lengths = tuple(int(part.sum()) for part in parts)
        return Layout(lengths, self.segment[keep], self.offset[keep], self.index[keep])

    def to(self, device: torch.device | str) -> Layout:
        """The same layout on another device."""
        return Layout(
            self.take_lengths,
            self.segment.to(device),
            self.offset.to(device),
            self.index.to(device),
        )

    def block(self, attention: str, block: int) -> Tensor:
        """Block ids [N] for an attention mode (table above)."""
        if attention == "clip_causal":
            return self.segment
        if attention == "block_causal":
            return self.index // block
        if attention == "token_causal":
            return self.index
        return torch.zeros_like(self.index)


def layout_of_segments(segment_lengths: list[list[int]]) -> Layout:
    """The layout of takes given by their segment lengths, one list per take."""
    segment: list[Tensor] = []
    offset: list[Tensor] = []
    index: list[Tensor] = []
    for lengths in segment_lengths:
        size = torch.tensor(lengths, dtype=torch.long)
        segment.append(torch.repeat_interleave(torch.arange(len(lengths)), size))
        offset.extend(torch.arange(length) for length in lengths)
        index.append(torch.arange(int(size.sum())))
    return Layout(
        tuple(sum(lengths) for lengths in segment_lengths),
        torch.cat(segment),
        torch.cat(offset),
        torch.cat(index),
    )
