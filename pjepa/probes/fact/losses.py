"""FACT's losses. A frame labelled -1 takes part in none but the smoothing, which needs no label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjepa.probes.fact.blocks import BlockOutput, Exchange
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.matching import Match, Truth

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
    found = {
        "f2a": -(f2a * weighted).sum() / target.sum(),
        "a2f": -(a2f * weighted).sum() / len(target),
    }
    if exchange.logits is not None:
        logits = exchange.logits[labelled]
        classes = torch.zeros_like(logits).index_add_(1, truth.classes, cover)  # [P, C]
        total = cross_entropy(logits, classes, weights.classes[:-1], reduction="sum")
        found["seg"] = total / len(logits)
    return found


def loss_terms(
    output: BlockOutput, truth: Truth, match: Match, weights: LossWeights
) -> dict[str, Tensor]:
    """Return every term of one block, unweighted."""
    found = {"smooth": block_smoothness(output)}
    found["frame"] = frame_loss(output.frame_logits, truth, weights.classes)
    found["token"] = token_loss(output.token_logits, truth, match, weights.classes)
    if output.exchange is not None:
        found |= exchange_terms(output.exchange, truth, match, weights)
    return found


def block_smoothness(output: BlockOutput) -> Tensor:
    """Return the smoothness of the frames' classes and, in block u, of both attentions."""
    found, exchange = smoothness(output.frame_logits), output.exchange
    if exchange is not None and exchange.runs is None:
        found = found + smoothness(exchange.a2f) + smoothness(exchange.f2a.T)
    return found


def block_loss(terms: dict[str, Tensor], smooth_weight: float) -> Tensor:
    """Return the sum of a block's terms; in block U frames and runs share one place."""
    frame = (terms["frame"] + terms["seg"]) / 2 if "seg" in terms else terms["frame"]
    found = frame + terms["token"] + smooth_weight * terms["smooth"]
    return found + terms["f2a"] + terms["a2f"] if "f2a" in terms else found
