"""What training reads: whole takes, or the part of them an epoch shows.

All randomness is keyed, so order, windows and masks never depend on how the work is cut: by
(seed, epoch) for the order, by (seed, epoch, take) for windows and masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pjepa.core.runs import runs
from pjepa.encoder.attention.layout import Layout
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.masking import rows_of, targets
from pjepa.pretrain.neighbours import pairs_of
from pjepa.pretrain.objective import Batch
from pjepa.pretrain.takes.exchange import Exchange
from pjepa.pretrain.takes.take import TrainingTake
from pjepa.pretrain.takes.views import TakeView, exchanged, whole
from pjepa.ui.errors import InputError
from pjepa.ui.transfer import sent

ORDER, MASK, WINDOW = 0, 1, 2  # what a random stream is for


def view(
    take: TrainingTake, epoch: int, config: PjepaConfig, exchange: Exchange | None = None
) -> TakeView:
    """Return this epoch's view of a take: `exchange`, `max_run`, `max_segments`, `crop_tokens`."""
    shown = exchanged(take, exchange.pieces_of(take, epoch)) if exchange else whole(take)
    if config.max_run is None and config.max_segments is None and config.crop_tokens is None:
        return shown
    rng = np.random.default_rng([config.seed, WINDOW, epoch, take.number])
    keep = np.arange(len(shown))
    if config.max_run is not None:
        keep = keep[shown.offset < config.max_run]
    if config.max_segments is not None:
        starts, lengths = runs(shown.segment[keep])
        first = int(rng.integers(max(0, len(starts) - config.max_segments) + 1))
        last = min(first + config.max_segments, len(starts)) - 1
        keep = keep[starts[first] : starts[last] + lengths[last]]
    if config.crop_tokens is not None:
        start = int(rng.integers(max(0, len(keep) - config.crop_tokens) + 1))
        keep = keep[start : start + config.crop_tokens]
    return shown.at(keep)


def epoch_steps(
    takes: Sequence[TrainingTake],
    epoch: int,
    config: PjepaConfig,
    exchange: Exchange | None = None,
) -> list[list[TakeView]]:
    """Yield all takes once in random order; a step is `accumulate` forward passes."""
    order = np.random.default_rng([config.seed, ORDER, epoch]).permutation(len(takes))
    views = [view(takes[place], epoch, config, exchange) for place in order]
    passes = forward_passes([v for v in views if len(v) >= 2], config)
    if not passes:
        raise InputError(
            "pretrain: no take shows two tokens, so nothing can be hidden; raise pjepa.max_run and "
            "pjepa.max_segments, or use longer takes"
        )
    grouped = [
        passes[first : first + config.accumulate]
        for first in range(0, len(passes), config.accumulate)
    ]
    return [[v for part in group for v in part] for group in grouped]


def forward_passes(views: Sequence[TakeView], config: PjepaConfig) -> list[list[TakeView]]:
    """Return views in order, as many together as token budget and `batch_takes` allow."""
    passes: list[list[TakeView]] = []
    tokens = 0
    most = config.batch_takes or len(views)
    for shown in views:
        tokens += len(shown)
        if not passes or tokens > config.batch_tokens or len(passes[-1]) >= most:
            passes.append([])
            tokens = len(shown)
        passes[-1].append(shown)
    return passes


class TokenPacking:
    """How the tokens of a batch are packed: here on the host, as the model reads them."""

    def packed(self, views: Sequence[TakeView], d_in: int) -> Tensor:
        """Return features [N, d_in] in float32."""
        found = np.zeros((sum(map(len, views)), d_in), np.float32)
        if views:
            np.concatenate(
                [piece.features() for shown in views for piece in shown.pieces], out=found
            )
        return torch.from_numpy(found)


def pack(
    views: Sequence[TakeView],
    epoch: int,
    config: PjepaConfig,
    d_in: int,
    tokens: TokenPacking | None = None,
) -> Batch:
    """Return views laid end to end with newly drawn targets; no views: an empty batch."""
    hidden, segments, offsets, index = ([np.zeros(0, np.int64)] for _ in range(4))
    for shown in views:
        rng = np.random.default_rng([config.seed, MASK, epoch, shown.take.number])
        segments.append(shown.segment)
        offsets.append(shown.offset)
        index.append(np.arange(len(shown)))
        hidden.append(targets(config.masking, segments[-1], config.mask_ratio, rng))
    target = torch.from_numpy(np.concatenate(hidden).astype(bool))
    lengths = tuple(len(shown) for shown in views)
    places = (torch.from_numpy(np.concatenate(x)).long() for x in (segments, offsets, index))
    layout, rows = Layout(lengths, *places), rows_of(target, lengths)
    pairs = pairs_of(config.neighbours, rows.visible, layout) if config.neighbours else None
    features = shifted((tokens or TokenPacking()).packed(views, d_in), views)
    return Batch(features, target, layout, rows, pairs)


def shifted(features: Tensor, views: Sequence[TakeView]) -> Tensor:
    """Return the packed tokens [N, d_in] of views, every piece with its shift."""
    pieces = [piece for shown in views for piece in shown.pieces]
    if all(piece.means is None for piece in pieces):
        return features
    shifts = np.stack([piece.shift() for piece in pieces])
    sizes = torch.tensor([len(piece) for piece in pieces])
    added = sent(torch.from_numpy(shifts), features.device)  # [pieces, d_in]
    return features + added.repeat_interleave(
        sent(sizes, features.device), dim=0, output_size=len(features)
    )
