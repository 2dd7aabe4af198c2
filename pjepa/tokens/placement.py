"""Which steps of a take become its tokens, and which segment holds each (Sec. 3.1).

A token belongs to a segment when start <= time < end. Segments are counted in order of (start,
end), so c(i) grows along the take whatever the order of the annotation file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pjepa.core.tables import VideoRow
from pjepa.core.time import TIME_TOLERANCE, token_count, token_segments, token_times
from pjepa.tokens.config import TokensConfig
from pjepa.ui.console import InputError, say


@dataclass(frozen=True)
class Placement:
    """The tokens of a take in order; with `gaps: drop` or `overlap: duplicate` times may jump."""

    step: np.ndarray  # [T] which step of the take: of its patches, or of its shipped features
    segment: np.ndarray  # [T] c(i), -1 in a gap
    swallowed: tuple[str, ...] = ()  # segments fully covered by an overlapping one
    without_token: int = 0  # segments between two tokens or past the end
    uncovered: int = 0  # tokens in the part cut off a segment


def grid_times(rows: list[VideoRow], fps: float) -> dict[str, np.ndarray]:
    """Return times [steps] of every take that is encoded from its video: a regular grid."""
    return {row.take_id: token_times(token_count(row.duration_s, fps), fps) for row in rows}


def placed_takes(
    times: Mapping[str, np.ndarray], boundaries: Mapping[str, np.ndarray], config: TokensConfig
) -> dict[str, Placement]:
    """Return the placement of every take with steps at `times`; report what annotations lost."""
    none = np.zeros((0, 2))
    placed = {
        take_id: place(take_id, steps, boundaries.get(take_id, none), config)
        for take_id, steps in times.items()
    }
    for take_id, placement in placed.items():
        if placement.swallowed:
            say(
                f"tokens: take {take_id}: {', '.join(placement.swallowed)} covered by the next "
                "segment; tokens.overlap=duplicate keeps them"
            )
    without = sum(placement.without_token for placement in placed.values())
    if without and config.overlap == "duplicate":
        say(f"tokens: {without} segments hold no token and were given the nearest one")
    elif without:
        say(
            f"tokens: {without} segments hold no token: they are shorter than 1/{config.fps:g} s "
            "or past the end"
        )
    uncovered = sum(placement.uncovered for placement in placed.values())
    if uncovered:
        say(f"tokens: {uncovered} tokens lost their segment, which ends where the next begins")
    return placed


def place(
    take_id: str, times: np.ndarray, boundaries: np.ndarray, config: TokensConfig
) -> Placement:
    """Return the tokens of one take whose segments [S, 2] may be unsorted, overlap or leave gaps.

    Its steps are at `times` [steps], which increase and need not be regular.
    """
    name = f"take {take_id}"
    limits = in_time_order(_checked(boundaries, name))
    if config.overlap == "fail":
        _refuse_overlap(limits, name)
    spans = np.searchsorted(times, limits, side="left")  # [S, 2] first and past the last step
    empty = spans[:, 0] == spans[:, 1]
    if config.overlap == "clip":
        spans = _clipped(spans)
    if config.overlap == "duplicate":
        spans[empty] = _nearest(times, limits[empty])
    swallowed = (spans[:, 0] == spans[:, 1]) & ~empty
    step, segment = _laid_out(spans, len(times), config.gaps == "keep")
    if not len(step):
        raise InputError(
            f"{name}: no token lies in an annotated segment, tokens.gaps=drop leaves nothing; "
            "use tokens.gaps=keep or annotate the take"
        )
    before, after = (int((ids >= 0).sum()) for ids in (token_segments(times, limits), segment))
    return Placement(
        step,
        segment,
        tuple(_named(limits, k) for k in np.flatnonzero(swallowed).tolist()),
        int(np.count_nonzero(empty)),
        max(0, before - after),
    )


def in_time_order(boundaries: np.ndarray) -> np.ndarray:
    """Return segments [S, 2] by (start, end); equal ones keep their order."""
    return boundaries[np.lexsort((boundaries[:, 1], boundaries[:, 0]))]


def _checked(boundaries: np.ndarray, name: str) -> np.ndarray:
    for start, end in boundaries:
        if not (np.isfinite([start, end]).all() and start <= end):
            raise InputError(
                f"{name}: a segment from {start:g} to {end:g} s; expected numbers, the end after "
                "the start; correct the annotation"
            )
    return boundaries


def _refuse_overlap(limits: np.ndarray, name: str) -> None:
    """Raise an error that names the first two overlapping segments, in order."""
    for k in range(1, len(limits)):
        longest = int(np.argmax(limits[:k, 1]))
        if limits[k, 0] < limits[longest, 1] - TIME_TOLERANCE:
            raise InputError(
                f"{name}: {_named(limits, longest)} and {_named(limits, k)} overlap; correct the "
                "annotation, or use tokens.overlap=clip or duplicate"
            )


def _clipped(spans: np.ndarray) -> np.ndarray:
    """Return segments that end no later than the next segment with a token begins."""
    ended = spans.copy()
    held = np.flatnonzero(spans[:, 0] < spans[:, 1])
    ended[held[:-1], 1] = np.minimum(spans[held[:-1], 1], spans[held[1:], 0])
    return ended


def _nearest(times: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return the step nearest to each segment's centre as a span [S, 2], as in the release."""
    step = np.abs(times[None] - limits.mean(axis=1)[:, None]).argmin(axis=1)
    return np.stack([step, step + 1], axis=1)


def _laid_out(spans: np.ndarray, count: int, keep: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return step and segment of every token: segments in order, with the gaps between if kept."""
    pieces: list[tuple[int, int, int]] = []
    covered = 0
    for number, (first, stop) in enumerate(spans.tolist()):
        if keep and first > covered:
            pieces.append((covered, first, -1))
        pieces.append((first, stop, number))
        covered = max(covered, stop)
    if keep:
        pieces.append((covered, count, -1))
    steps = [np.arange(first, stop) for first, stop, _ in pieces]
    numbers = [np.full(stop - first, number) for first, stop, number in pieces]
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *steps]), np.concatenate([none, *numbers]).astype(np.int32)


def _named(limits: np.ndarray, row: int) -> str:
    return f"segment {row} ({limits[row, 0]:.2f} to {limits[row, 1]:.2f} s)"
