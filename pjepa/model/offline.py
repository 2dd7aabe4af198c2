"""Segments without labels, offline: the package `ruptures` cuts a take as a whole. Not causal.

Every token may move a boundary anywhere in the take, so features made with these segments have
seen the whole take; `found` segments are the causal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from pjepa.model.segments import FoundConfig, FoundParameters, evenly_chosen
from pjepa.ui.console import InputError

PIECE = 2048  # tokens cut at once: the cost is quadratic in them
FIT_TOKENS = 20_000  # of training takes that calibrate a penalty
SCALE_TOKENS = 512  # of a take that tell the kernel's scale
PROJECTED = 64  # channels: a random projection keeps distances


def ruptures_segments(features: np.ndarray, found: FoundParameters) -> np.ndarray:
    """Return c(i) [T] by kernel change-point detection with the penalty `found.threshold`.

    Long takes are cut piece by piece; a piece begins at the last break of the one before.
    """
    tokens = _projected(features, found.std)
    scale = _kernel_scale(tokens)
    ends = np.zeros(len(tokens), np.int64)
    first = 0
    while first < len(tokens):
        piece = tokens[first : first + PIECE]
        breaks = _breaks(_search(piece, found.config.shortest, scale), found.threshold)
        if first + len(piece) < len(tokens) and (not breaks or breaks[-1] < PIECE // 2):
            breaks.append(len(piece))  # or the pieces would hardly move on
        ends[[first + stop - 1 for stop in breaks]] = 1
        first = len(tokens) if first + len(piece) == len(tokens) else first + breaks[-1]
    return np.cumsum(ends) - ends


def fit_penalty(takes: Sequence[np.ndarray], config: FoundConfig, std: np.ndarray) -> float:
    """Return the penalty at which segments of these takes average `config.tokens` tokens."""
    pieces = [_projected(take[:PIECE], std) for take in evenly_chosen(takes, FIT_TOKENS)]
    searches = [_search(piece, config.shortest, _kernel_scale(piece)) for piece in pieces]
    tokens = sum(map(len, pieces))
    low, high = 1e-3, 1e3
    for _ in range(20):  # halves the logarithm's range to 1e-5
        middle = float(np.sqrt(low * high))
        count = sum(len(_breaks(search, middle)) + 1 for search in searches)
        low, high = (low, middle) if tokens >= config.tokens * count else (middle, high)
    return high


def _projected(features: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return the standardised tokens [T, D] in at most `PROJECTED` channels."""
    tokens = features / np.asarray(std, np.float64)
    if tokens.shape[1] <= PROJECTED:
        return tokens
    axes = np.random.default_rng(0).standard_normal((tokens.shape[1], PROJECTED))
    return tokens @ axes / np.sqrt(PROJECTED)  # [T, PROJECTED]


def _kernel_scale(tokens: np.ndarray) -> float:
    """Return 1 / the median squared distance of tokens: one kernel for all pieces of a take."""
    from scipy.spatial.distance import pdist  # slow to import, and only this kind needs it

    some = tokens[:: -(-len(tokens) // SCALE_TOKENS) or 1]
    distances = pdist(some, "sqeuclidean")
    median = float(np.median(distances)) if len(distances) else 0.0
    return 1.0 / median if median else 1.0


def _search(tokens: np.ndarray, shortest: int, scale: float) -> Any:
    """Return a fitted `KernelCPD`; None where the tokens are too few for two segments."""
    try:
        ruptures = import_module("ruptures")
    except ModuleNotFoundError:
        raise InputError(
            "pjepa.segments=ruptures needs the package ruptures; pip install 'pjepa[segments]'"
        ) from None
    if len(tokens) < 2 * shortest:
        return None
    return ruptures.KernelCPD("rbf", min_size=shortest, params={"gamma": scale}).fit(tokens)


def _breaks(search: Any, penalty: float) -> list[int]:
    """Return where segments end, the last one left out."""
    return [] if search is None else search.predict(pen=penalty)[:-1]
