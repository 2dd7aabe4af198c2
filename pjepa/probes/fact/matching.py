"""The match of action tokens and true segments: made once per take, from the last block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjepa.probes.fact.blocks import Exchange
from pjepa.probes.fact.runs import runs_of
from pjepa.ui.errors import InputError


@dataclass(frozen=True)
class Truth:
    """The labelled segments of a take: runs of equal label, background included, -1 left out."""

    labels: Tensor  # [T], -1 unknown
    segment_of_frame: Tensor  # [T], -1 unknown
    classes: Tensor  # [S]

    def cover(self, exchange: Exchange) -> Tensor:
        """Return how many labelled frames each place shares with each segment [P, S]."""
        known = self.segment_of_frame >= 0
        runs = exchange.runs
        place = known.nonzero().squeeze(1) if runs is None else runs.of_frame[known]
        found = exchange.a2f.new_zeros(len(exchange.a2f), len(self.classes))
        ones = found.new_ones(len(place))
        return found.index_put_((place, self.segment_of_frame[known]), ones, accumulate=True)


class Match(NamedTuple):
    """Pairs of token and segment, one pair per segment."""

    token: Tensor  # [S]
    segment: Tensor  # [S]


def truth_of(labels: Tensor) -> Truth:
    """Return the segments of labels [T]; an unknown stretch separates what lies around it."""
    runs = runs_of(labels)
    known = runs.labels >= 0
    index = torch.where(known, known.cumsum(0) - 1, -1)  # [R] number of the segment
    return Truth(labels, index[runs.of_frame], runs.labels[known])


def soft_iou(exchange: Exchange, truth: Truth) -> Tensor:
    """Return sum_t min(att, in) / sum_t min(att + in, 1) of every token and segment [M, S].

    att <= 1, so the second sum is |segment| + sum(att) - the first: no [T, M, S] array is needed.
    Only labelled frames count.
    """
    attention, cover = exchange.a2f.softmax(1), truth.cover(exchange)  # [P, M], [P, S]
    inside = attention.T @ cover
    total = attention.T @ cover.sum(1, keepdim=True)  # [M, 1]
    return inside / (cover.sum(0) + total - inside)


@torch.no_grad()
def matched(
    token_logits: Tensor,
    exchange: Exchange,
    truth: Truth,
    kind: Literal["o2o", "o2m"],
    class_cost: float,
    overlap_cost: float,
) -> Match:
    """Return the cheapest pairs, cost = - class_cost P(class) - overlap_cost soft IoU."""
    probability = token_logits.softmax(1)[:, truth.classes]  # [M, S]
    cost = -class_cost * probability - overlap_cost * soft_iou(exchange, truth)
    if not cost.isfinite().all():
        raise InputError(
            "FACT: the outputs are not finite, training has diverged; lower probe.fact.lr"
        )
    classes = truth.classes.cpu().numpy()
    pairs = one_to_one if kind == "o2o" else one_to_many
    token, segment = pairs(cost.cpu().numpy(), classes)
    device = truth.classes.device
    return Match(torch.from_numpy(token).to(device), torch.from_numpy(segment).to(device))


def one_to_one(
    cost: NDArray[np.float32], classes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return tokens (ascending) and their segments, every segment with a token of its own."""
    _enough_tokens(cost, len(classes), "segments")
    return _cheapest(cost)


def _cheapest(cost: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and columns of the cheapest assignment."""
    from scipy.optimize import linear_sum_assignment  # slow to import, and only training matches

    return linear_sum_assignment(cost)


def one_to_many(
    cost: NDArray[np.float32], classes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return tokens and segments by class, then time; a token serves one class only.

    Classes choose tokens by the cost summed over their segments; tokens not chosen join their
    cheapest class, and each segment takes the cheapest token of its class.
    """
    names, of_segment = np.unique(classes, return_inverse=True)
    _enough_tokens(cost, len(names), "classes")
    per_class = np.stack([cost[:, of_segment == c].sum(1) for c in range(len(names))], axis=1)
    owner = per_class.argmin(1)  # [M]
    token, chosen = _cheapest(per_class)
    owner[token] = chosen
    segments = np.argsort(of_segment, kind="stable")
    own = owner[:, None] == of_segment[segments]  # [M, S]
    return np.where(own, cost[:, segments], np.inf).argmin(0), segments


def _enough_tokens(cost: NDArray[np.float32], needed: int, what: str) -> None:
    if needed > len(cost):
        raise InputError(
            f"FACT: a take has {needed} {what} but there are {len(cost)} action tokens; "
            f"set probe.fact.tokens to {needed} or more"
        )
