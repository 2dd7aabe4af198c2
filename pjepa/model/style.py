"""Input normalisation: masked prediction latches onto anything constant over a take.

Camera, person and light are constant over a take and easy to predict; without them only the
procedure is left. `take_center` subtracts the take's mean, which needs the whole take.
`causal_center` needs only the visible tokens: a take's style s ~ N(0, B) is estimated from the mean
of n tokens whose spread around it is W, by the posterior mean B (B + W t / n)^-1 mean. Directions
in which takes differ much more than tokens (large B / W) are removed after a few tokens; directions
in which a single step moves are left alone, so the first segment is not erased. t is how many
tokens count as one independent look, because neighbours are alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pjepa.model.attention import Layout
from pjepa.ui.console import InputError

RIDGE = 0.01  # share of the mean variance added to W, so that it can be inverted
STILL = 1e-10  # a mean variance up to here is rounding: no token differs from its take's mean


@dataclass(frozen=True)
class Style:
    """B and W in common axes: `read` [D, K] makes W white, `write` [K, D] undoes it."""

    read: Tensor
    write: Tensor
    strength: Tensor  # [K] variance of the style along each axis, in units of W


def fit_style(takes: Iterable[Tensor], rank: int, look: float) -> Style:
    """Return the style of standardised takes [T, D]: the `rank` strongest axes of B over W.

    Takes are processed one by one, so that they need not fit in memory together.
    """
    take_means, tokens, scatter = [], 0, torch.zeros(())
    for take in takes:
        mean = take.mean(dim=0)
        spread = (take - mean).double()
        scatter = scatter + spread.T @ spread
        take_means.append(mean)
        tokens += len(take)
    means = torch.stack(take_means)  # [takes, D]
    within = scatter / tokens  # W [D, D]
    if within.diagonal().mean() <= STILL:
        raise InputError("no feature changes inside any take; check the features' extractor")
    within += RIDGE * within.diagonal().mean() * torch.eye(len(within)).to(within)
    values, axes = torch.linalg.eigh(within)
    whiten = axes * values.rsqrt() @ axes.T
    colour = axes * values.sqrt() @ axes.T
    centred = (means - means.mean(dim=0)).double() @ whiten
    looks = tokens / len(means) / look
    # Means of finite takes scatter by W / looks on top of B.
    strength, turn = torch.linalg.eigh(centred.T @ centred / len(means))
    strength = (strength - 1.0 / looks).clamp_min(0.0).flip(0)[:rank]
    turn = turn.flip(1)[:, :rank]
    return Style((whiten @ turn).float(), (turn.T @ colour).float(), strength.float())


def take_mean(x: Tensor, layout: Layout) -> Tensor:
    """Return the mean over the whole take, for every token [N, D]. Sees the future."""
    takes = torch.split(x, list(layout.take_lengths))
    return torch.cat([take.mean(dim=0, keepdim=True).expand_as(take) for take in takes])


@dataclass(frozen=True)
class StyleSums:
    """What a take's earlier tokens reveal of its style: their sum along the axes, and their number.

    In double precision, so that a stream of any length adds up as a whole take does.
    """

    total: Tensor  # [K] float64
    count: int

    def after(self, x: Tensor, style: Style) -> StyleSums:
        """Return the statistics after the standardised tokens x [n, D] as well."""
        more = (x @ style.read).double().sum(dim=0)
        return StyleSums(self.total + more, self.count + len(x))


def visible_style(
    x: Tensor,
    layout: Layout,
    block: Tensor,
    style: Style,
    look: float,
    past: StyleSums | None = None,
) -> Tensor:
    """Return the estimated style [N, D] from all tokens up to the end of each token's block.

    `past` are tokens of the take before these, of which there is then one only.
    """
    lengths, estimates = list(layout.take_lengths), []
    takes = zip(torch.split(x, lengths), torch.split(block.contiguous(), lengths), strict=True)
    for tokens, ids in takes:
        if not len(tokens):
            continue
        count = torch.searchsorted(ids, ids, right=True)[:, None]  # [T, 1] visible tokens
        total = (tokens @ style.read).cumsum(dim=0)[count[:, 0] - 1]  # [T, K]
        if past is not None:
            total = (total.double() + past.total).to(total.dtype)
            count = count + past.count
        mean = total / count
        estimates.append(mean * style.strength / (style.strength + look / count))
    return torch.cat(estimates) @ style.write if estimates else torch.zeros_like(x)
