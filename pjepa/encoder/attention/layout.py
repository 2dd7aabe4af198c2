"""Coordinates of packed tokens: take, segment and place (packed, never padded).

A batch is whole takes laid end to end. Attention modes are one rule, `key block <= query block`,
with different block ids (Eq. 3):

| mode            | block of token i          | may see                                        |
|-----------------|---------------------------|------------------------------------------------|
| `clip_causal`   | its segment c(i)          | its whole segment and everything before (paper) |
| `block_causal`  | index // `block`          | its fixed window and everything before          |
| `token_causal`  | its index                 | itself and everything before                    |
| `bidirectional` | 0                         | the whole take                                  |
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pjepa.ui.transfer import sent


@dataclass(frozen=True)
class Layout:
    """Coordinates of N packed tokens. Tokens of a take are contiguous and in time order."""

    take_lengths: tuple[int, ...]
    segment: Tensor  # [N] c(i), counted from 0 in each take
    offset: Tensor  # [N] r(i)
    index: Tensor  # [N] place in the whole take, also when only some tokens are kept
    tables: dict[Hashable, Any] = field(default_factory=dict, kw_only=True)  # of `rope_table`

    def at(self, rows: Tensor, lengths: tuple[int, ...]) -> Layout:
        """Return the tokens at `rows` at their original coordinates."""
        places = (self.segment, self.offset, self.index)
        tables = {key: table.at(rows) for key, table in self.tables.items()}
        return Layout(lengths, *(p.index_select(0, rows) for p in places), tables=tables)

    def to(self, device: torch.device | str) -> Layout:
        """Return the same layout on another device."""
        return Layout(
            self.take_lengths,
            sent(self.segment, device),
            sent(self.offset, device),
            sent(self.index, device),
        )

    def block(self, attention: str, block: int) -> Tensor:
        """Return the block ids [N] for an attention mode (table above)."""
        if attention == "clip_causal":
            return self.segment
        if attention == "block_causal":
            return self.index // block
        if attention == "token_causal":
            return self.index
        return torch.zeros_like(self.index)


def layout_of_segments(segment_lengths: list[list[int]]) -> Layout:
    """Return the layout of takes given by their segment lengths, one list per take."""
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
