"""FACT's losses. A frame labelled -1 takes part in none but the smoothing, which needs no label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjepa.probes.fact.blocks import BlockOutput, Exchange, runs_of
from pjepa.probes.fact.config import FactConfig
from pjepa.ui.console import InputError

# The match of action tokens and true segments: made once per take, from the last block.


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
        counts = exchange.a2f.new_zeros(len(exchange.a2f), len(self.classes))
        ones = counts.new_ones(len(place))
        return counts.index_put_((place, self.segment_of_frame[known]), ones, accumulate=True)


class Match(NamedTuple):
    """Pairs of token and segment; every segment has a token of its own."""

    token: Tensor  # [S] ascending
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
    token_logits: Tensor, exchange: Exchange, truth: Truth, class_cost: float, overlap_cost: float
) -> Match:
    """Return the cheapest pairs, cost = - class_cost P(class) - overlap_cost soft IoU."""
    from scipy.optimize import linear_sum_assignment  # slow to import, and only training matches

    probability = token_logits.softmax(1)[:, truth.classes]  # [M, S]
    cost = -class_cost * probability - overlap_cost * soft_iou(exchange, truth)
    if not cost.isfinite().all():
        raise InputError(
            "FACT: the outputs are not finite, training has diverged; lower probe.fact.lr"
        )
    tokens, segments = cost.shape
    if segments > tokens:
        raise InputError(
            f"FACT: a take has {segments} segments but there are {tokens} action tokens; "
            f"set probe.fact.tokens to {segments} or more"
        )
    pairs = linear_sum_assignment(cost.cpu().numpy())
    return Match(*(torch.from_numpy(ids).to(cost.device) for ids in pairs))


STEEPEST = 16.0  # a change of log-probability is punished up to 4, squared


@dataclass(frozen=True)
class LossWeights:
    """Weights of the classes, and of the segments in the order of the match."""

    classes: Tensor  # [C + 1], the null class last
    segments: Tensor  # [S]


def class_weights(config: FactConfig, classes: int, background: int | None) -> Tensor:
    """Return 1, the background's weight and, last, the null class's [C + 1]."""
    weights = torch.ones(classes + 1)
    if background is not None:
        weights[background] = config.background_weight
    weights[-1] = config.null_weight_for(classes)
    return weights


def segment_weights(class_weight: Tensor, truth: Truth, match: Match, aligned: bool) -> Tensor:
    """Return each pair's weight [S].

    Unless `aligned`, in order of time while the pairs are in the order of the match. FACT was
    trained and published so; it makes no difference where the background's weight is 1.
    """
    weights = class_weight[truth.classes]
    return weights[match.segment] if aligned else weights


def smoothness(logits: Tensor) -> Tensor:
    """Return the mean squared change of log-probability between neighbours of logits [T, C]."""
    if len(logits) < 2:
        return 0 * logits.sum()
    return logits.log_softmax(1).diff(dim=0).square().clamp(max=STEEPEST).mean()


def frame_loss(logits: Tensor, truth: Truth, weights: Tensor) -> Tensor:
    """Return the weighted cross entropy over labelled frames, divided by their number."""
    total = cross_entropy(logits, truth.labels, weights[:-1], ignore_index=-1, reduction="sum")
    return total / (truth.labels >= 0).sum()


def token_loss(logits: Tensor, truth: Truth, match: Match, weights: Tensor) -> Tensor:
    """Return the weighted mean cross entropy over tokens; one without a segment is null."""
    target = torch.full_like(logits[:, 0], len(weights) - 1, dtype=torch.long)
    target[match.token] = truth.classes[match.segment]
    return cross_entropy(logits, target, weights)


def exchange_terms(
    exchange: Exchange, truth: Truth, match: Match, weights: LossWeights
) -> dict[str, Tensor]:
    """Return the losses of both attentions (`f2a`, `a2f`) and of the runs' classes (`seg`).

    Each column is a matched pair. Tokens spread over the places (f2a), places over the matched
    tokens (a2f); the target of a place is the share of it that a segment covers.
    """
    cover = truth.cover(exchange)  # [P, S]
    labelled = cover.sum(1) > 0
    cover = cover[labelled] / cover[labelled].sum(1, keepdim=True)
    target = cover[:, match.segment]
    f2a = exchange.f2a.T[labelled][:, match.token].log_softmax(0)  # [P, S]
    a2f = exchange.a2f[labelled][:, match.token].log_softmax(1)
    weighted = target * weights.segments
    terms = {
        "f2a": -(f2a * weighted).sum() / target.sum(),
        "a2f": -(a2f * weighted).sum() / len(target),
    }
    if exchange.logits is not None:
        logits = exchange.logits[labelled]
        classes = torch.zeros_like(logits).index_add_(1, truth.classes, cover)  # [P, C]
        total = cross_entropy(logits, classes, weights.classes[:-1], reduction="sum")
        terms["seg"] = total / len(logits)
    return terms


def loss_terms(
    output: BlockOutput, truth: Truth, match: Match, weights: LossWeights
) -> dict[str, Tensor]:
    """Return every term of one block, unweighted."""
    terms = {
        "smooth": block_smoothness(output),
        "frame": frame_loss(output.frame_logits, truth, weights.classes),
        "token": token_loss(output.token_logits, truth, match, weights.classes),
    }
    if output.exchange is not None:
        terms |= exchange_terms(output.exchange, truth, match, weights)
    return terms


def block_smoothness(output: BlockOutput) -> Tensor:
    """Return the smoothness of the frames' classes and, in block u, of both attentions."""
    total, exchange = smoothness(output.frame_logits), output.exchange
    if exchange is not None and exchange.runs is None:
        total = total + smoothness(exchange.a2f) + smoothness(exchange.f2a.T)
    return total


def block_loss(terms: dict[str, Tensor], smooth_weight: float) -> Tensor:
    """Return the sum of a block's terms; in block U frames and runs share one place."""
    frame = (terms["frame"] + terms["seg"]) / 2 if "seg" in terms else terms["frame"]
    total = frame + terms["token"] + smooth_weight * terms["smooth"]
    return total + terms["f2a"] + terms["a2f"] if "f2a" in terms else total
