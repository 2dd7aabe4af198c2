"""The neighbour term: one token alone has to tell its own segment and those before and after.

    L_neighbour = 1/|A| sum_{(i, k) in A} smooth_l1(H_k z_i, m_{c(i) + k})
    A = {(i, k) : i in C, k in K, the take has a segment c(i) + k}
    L = L_P-JEPA (Eq. 2) + w L_neighbour

| here      | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| K, w      | `pjepa.neighbours`, `pjepa.neighbour_weight`                                     |
| z_i       | the student's output at a context token i in C                                   |
| m_s       | mean of the normalised input tokens of segment s: fixed by the data, no collapse |
| H_k       | one linear layer per k: no attention, so z_i itself must carry the answer        |

Not in the paper. The predictor of Eq. 2 sees the whole stream and can look the past up by itself,
so Eq. 2 alone does not ask the encoder to carry it. Segments are those the encoder's attention
and positions use, so the term knows no boundary that the encoder does not. smooth_l1 is the mean
over channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.model.attention import Layout
from pjepa.storage.reading import read_tensors
from pjepa.storage.writing import write_tensors
from pjepa.ui.console import InputError
from pjepa.ui.transfer import sent

HEADS = "neighbours.safetensors"  # beside the encoder's model.safetensors


class NeighbourHeads(nn.Module):
    """H_k: one linear layer per place k, from a feature [d] to a mean normalised token [d_in].

    `spread` [d_in, d_in] is the covariance of those means over the segments of the training takes.
    """

    spread: Tensor

    def __init__(self, width: int, d_in: int, places: Sequence[int]) -> None:
        super().__init__()
        self.places = tuple(places)  # K
        self.at = nn.ModuleDict({str(k): nn.Linear(width, d_in) for k in self.places})
        self.register_buffer("spread", torch.eye(d_in))

    def forward(self, features: Tensor, k: int) -> Tensor:
        """Return the prediction [n, d_in] from features [n, d] for the segment k places away."""
        predicted: Tensor = self.at[str(k)](features)
        return predicted.float()

    def predict_all(self, features: Tensor) -> Tensor:
        """Return the predictions [n, K, d_in] for all places, in one matrix product."""
        layers = [cast(nn.Linear, self.at[str(k)]) for k in self.places]
        weight = torch.cat([layer.weight for layer in layers])  # [K d_in, d]
        bias = torch.cat([layer.bias for layer in layers])
        return F.linear(features, weight, bias).float().unflatten(1, (len(layers), -1))

    def save(self, folder: Path) -> None:
        """Write the heads beside the encoder of a snapshot."""
        write_tensors(folder / HEADS, {**self.at.state_dict(), "spread": self.spread})

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> NeighbourHeads:
        """Read what `save` wrote."""
        path = folder / HEADS
        if not path.is_file():
            raise InputError(f"{path}: no neighbour heads; pretrain with pjepa.neighbours")
        tensors = read_tensors(path, "spread")
        spread = tensors.pop("spread")
        places = sorted({int(name.split(".")[0]) for name in tensors})
        d_in, width = tensors[f"{places[0]}.weight"].shape
        heads = cls(width, d_in, places)
        heads.at.load_state_dict(tensors)
        heads.spread.copy_(spread)
        return heads.to(device).eval()


@dataclass(frozen=True, eq=False)
class Pairs:
    """A of a packed batch as indices, made once and best on the CPU: no GPU has to wait."""

    own: Tensor  # [N] every token's segment, counted over the whole batch
    sizes: Tensor  # [S] tokens of every segment
    answers: Tensor  # [A] the place of (i, k) among the heads' answers [C, K], flattened,
    segments: Tensor  # [A] and the segment c(i) + k that it is about

    def __len__(self) -> int:
        return len(self.answers)

    def to(self, device: torch.device | str) -> Pairs:
        """Return the same pairs on another device."""
        parts = (self.own, self.sizes, self.answers, self.segments)
        return Pairs(*(sent(part, device) for part in parts))


def pairs_of(places: Sequence[int], context: Tensor, layout: Layout) -> Pairs:
    """Return the pairs of the context tokens at `context` [C]."""
    lengths = torch.tensor(layout.take_lengths, dtype=torch.long, device=layout.segment.device)
    counts = layout.segment[lengths.cumsum(0) - 1] + 1  # [takes] segments of each
    ends = counts.cumsum(0)  # where each take's segments end, counted over the batch
    first, end = ((ends - counts).repeat_interleave(lengths), ends.repeat_interleave(lengths))
    own = first + layout.segment  # [N]
    asked = own[context, None] + torch.tensor(places, device=own.device)  # [C, K]
    exists = (asked >= first[context, None]) & (asked < end[context, None])
    answers = exists.flatten().nonzero()[:, 0]
    return Pairs(own, torch.bincount(own), answers, asked.flatten()[answers])


def neighbour_error(heads: NeighbourHeads, context: Tensor, pairs: Pairs, x: Tensor) -> Tensor:
    """Return the error summed over A of context features [C, d].

    x [N, d_in] are the normalised tokens of the whole batch.
    """
    predicted = heads.predict_all(context).flatten(0, 1).index_select(0, pairs.answers)  # [A, d_in]
    means = segment_means(x, pairs.own, pairs.sizes).index_select(0, pairs.segments)
    return F.smooth_l1_loss(predicted, means, reduction="sum") / x.shape[1]


def segment_means(x: Tensor, own: Tensor, sizes: Tensor) -> Tensor:
    """Return m_s [S, D]: the mean of the tokens x [N, D] of every packed segment.

    `own` [N] is every token's segment, `sizes` [S] how many tokens each has.
    """
    sums = x.new_zeros(len(sizes), x.shape[1]).index_add_(0, own, x)
    return sums / sizes[:, None]
