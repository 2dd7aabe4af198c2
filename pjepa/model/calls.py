"""Which rectangles of (query, key) pairs the CPU kernel is called on.

No single call can leave out what a token must not see without a T x T mask. But rectangles that
together hold every allowed pair exactly once can be merged (see `attention`):

| tokens                      | calls                                                             |
|-----------------------------|-------------------------------------------------------------------|
| one block                   | its queries against everything up to its end                      |
| some blocks of a short take | one with a mask over everything up to their end                   |
| some short blocks           | one with a small mask; one for all earlier keys of the take       |
| a long take, token-causal   | one causal call                                                   |
| short blocks of a long take | small masks that keep `key >= query` inside a block; one causal   |
|                             | call for the take that is one place off, `key < query`            |
| some very short takes       | one with a small mask                                             |

Masks of long takes have a few hundred columns at most, so their memory is linear in T.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """In tokens: where one way becomes faster than the other, measured on one core."""

    group: int = 48  # very short takes that share a call
    short_take: int = 1536  # up to here a mask over all earlier keys beats a second call,
    rows: int = 96  # for so many queries at a time
    chunk: int = 256  # short blocks that share a mask
    tile: int = 128  # the same in a long take
    long_take: int = 2048  # longer takes go by tiles,
    long_block: int = 512  # unless their mean block is as long as this


SIZES = Sizes()


@dataclass(frozen=True, eq=False)
class Call:
    """Queries [start, stop) against keys [first, last)."""

    start: int
    stop: int
    first: int
    last: int
    causal: bool = False
    mask: Tensor | None = None  # added to the scores [queries, keys]
    merged: bool = False  # with what earlier calls found for these queries


def spans(ends: list[int], start: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut blocks that end at `ends` into spans (start, stop) of up to `limit` tokens or one block.

    The last span may be half as long again, so that no small rest is left.
    """
    while start < ends[-1]:
        if ends[-1] - start <= 1.5 * limit:
            stop = ends[-1]
        else:
            next_end = bisect_right(ends, start)
            stop = ends[max(next_end, bisect_right(ends, start + limit) - 1)]
        yield start, stop
        start = stop


def between(ends: list[int], start: int, stop: int) -> list[int]:
    """Return those in (start, stop]."""
    return ends[bisect_right(ends, start) : bisect_right(ends, stop)]


def take_ends(take_lengths: Iterable[int]) -> list[int]:
    """Return where takes end; takes without tokens are skipped."""
    return [stop for stop in dict.fromkeys(accumulate(take_lengths)) if stop]


def calls_of(
    take_lengths: Iterable[int], ends: list[int], sizes: Sizes = SIZES, some: bool = False
) -> list[Call]:
    """Return calls that together hold every allowed pair once; `ends` are block and take ends.

    A query's first call is not `merged`, all its later ones are. `some`: none is causal, so that
    queries can be left out (`at_rows`).
    """
    takes = take_ends(take_lengths)
    calls: list[Call] = []
    for start, stop in spans(takes, 0, sizes.group) if takes else ():
        inside = between(takes, start, stop)
        if len(inside) == 1:
            calls += _take_calls(start, between(ends, start, stop), sizes, some)
        else:
            blocks = [
                (first, s, e)
                for first, last in pairwise([start, *inside])
                for s, e in pairwise([first, *between(ends, first, last)])
            ]
            calls.append(_masked(blocks))
    return calls


def at_rows(calls: Iterable[Call], rows: Tensor) -> list[Call]:
    """Return the same calls for the queries `rows` [M] only, in order and renumbered from 0."""
    wanted, found = rows.tolist(), []
    for c in calls:
        start, stop = bisect_left(wanted, c.start), bisect_left(wanted, c.stop)
        if start < stop:
            own = rows[start:stop] - c.start
            mask = None if c.mask is None else c.mask.index_select(0, own)
            found.append(Call(start, stop, c.first, c.last, c.causal, mask, c.merged))
    return found


def _take_calls(begin: int, ends: list[int], sizes: Sizes, some: bool) -> Iterator[Call]:
    """Yield the calls for one take whose blocks end at `ends`."""
    length = ends[-1] - begin
    short_blocks = length < sizes.long_block * len(ends)
    if len(ends) == 1:
        yield Call(begin, ends[-1], begin, ends[-1])
    elif length <= sizes.short_take:
        yield from _prefix_calls(begin, ends, sizes)
    elif len(ends) == length and not some:
        yield Call(begin, ends[-1], begin, ends[-1], causal=True)
    elif length > sizes.long_take and short_blocks and not some:
        yield from _tiled_calls(begin, ends, sizes.tile)
    else:
        for start, stop in spans(ends, begin, sizes.chunk):
            inside = between(ends, start, stop)
            if len(inside) == 1:
                yield Call(start, stop, begin, stop)
                continue
            yield _masked([(start, s, e) for s, e in pairwise([start, *inside])])
            if start > begin:
                yield Call(start, stop, begin, start, merged=True)


def _prefix_calls(begin: int, ends: list[int], sizes: Sizes) -> Iterator[Call]:
    """Yield the calls of a short take: some blocks at a time against all up to their end."""
    single_tokens = len(ends) == ends[-1] - begin
    for start, stop in spans(ends, begin, sizes.rows):
        inside = between(ends, start, stop)
        mask = None
        if single_tokens:
            stairs = _stairs(-(-3 * sizes.rows // 2), sizes.short_take)
            column = sizes.short_take - (start - begin)
            mask = stairs[: stop - start, column : column + stop - begin]
        elif len(inside) > 1:
            hidden = np.full((stop - start, stop - begin), -np.inf, dtype=np.float32)
            for s, e in pairwise([start, *inside]):
                hidden[s - start : e - start, : e - begin] = 0
            mask = torch.from_numpy(hidden)
        yield Call(start, stop, begin, stop, mask=mask)


@lru_cache(maxsize=4)
def _stairs(rows: int, before: int) -> Tensor:
    """Return `before` visible columns, then `key <= query`; token-causal masks are its parts."""
    with torch.inference_mode(False):
        later = torch.full((rows, rows), -torch.inf).triu(1)
        return torch.cat([torch.zeros(rows, before), later], dim=1)


def _tiled_calls(begin: int, ends: list[int], tile: int) -> Iterator[Call]:
    """Yield `key >= query` inside blocks, tile by tile; then `key < query` for the whole take."""
    for start, stop in spans(ends, begin, tile):
        inside = between(ends, start, stop)
        if len(inside) == 1:
            yield from _triangle(start, stop, tile)
        else:
            own = [(s, s, e) for s, e in pairwise([start, *inside])]
            yield _masked(own, above=True)
    yield Call(begin + 1, ends[-1], begin, ends[-1] - 1, causal=True, merged=True)


def _triangle(start: int, stop: int, tile: int) -> Iterator[Call]:
    """Yield `key >= query` in one block: small triangles, and the squares between them."""
    if stop - start <= 2 * tile:
        yield _masked([(start, start, stop)], above=True)
        return
    middle = (start + stop) // 2
    yield from _triangle(start, middle, tile)
    yield from _triangle(middle, stop, tile)
    yield Call(start, middle, middle, stop, merged=True)


def _masked(blocks: list[tuple[int, int, int]], above: bool = False) -> Call:
    """Return neighbouring blocks (first key, start, stop) among themselves.

    `above`: `key >= query`.
    """
    start, stop = blocks[0][1], blocks[-1][2]
    mask = np.full((stop - start, stop - start), -np.inf, dtype=np.float32)
    for first, s, e in blocks:
        mask[s - start : e - start, first - start : e - start] = 0
    if above:
        mask[np.tri(stop - start, k=-1, dtype=bool)] = -np.inf
    return Call(start, stop, start, stop, mask=torch.from_numpy(mask))


# Tokens of which most are one and the same: the predictor's input (paper Sec.


@dataclass(frozen=True, eq=False)
class Fill:
    """Places of the tokens that are known, and of those that all hold the same vector.

    Such tokens are written as rows [C + 1, ...]: the known ones in order, then the common one.
    What is computed row by row is computed for C + 1 of them instead of N.
    """

    known: Tensor  # [C] long
    common: Tensor  # [N - C] long

    def spread(self, rows: Tensor) -> Tensor:
        """Return all tokens [N, ...] of rows [C + 1, ...]."""
        count = len(self.known) + len(self.common)
        full = rows[-1:].expand(count, *rows.shape[1:])
        return full.index_copy(0, self.known, rows[:-1])

    def gathered(self, tokens: Tensor) -> Tensor:
        """Return the gradient of rows [C + 1, ...], given that of all tokens [N, ...]."""
        common = tokens.index_select(0, self.common).sum(0, keepdim=True)
        return torch.cat([tokens.index_select(0, self.known), common])
