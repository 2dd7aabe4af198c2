"""What training reads: whole takes in a memory map, or the part of them an epoch shows.

All randomness is keyed, so order, windows and masks never depend on how the work is cut: by
(seed, epoch) for the order, by (seed, epoch, take) for windows and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pjepa.core.runs import runs
from pjepa.model.attention import Layout
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import mask_of, random_targets
from pjepa.model.neighbours import pairs_of
from pjepa.model.objective import Batch
from pjepa.pretrain.config import PjepaConfig
from pjepa.storage.sealed import intact, put_aside, sealed_file
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import InputError, say, track
from pjepa.ui.transfer import sent

if TYPE_CHECKING:
    from pjepa.pretrain.exchange import Exchange

ORDER, MASK, WINDOW = 0, 1, 2  # what a random stream is for


@dataclass(frozen=True)
class TrainingTake:
    """One take, memory-mapped at the stream's own precision."""

    number: int  # place in the stream: the key of its random windows and masks
    take_id: str
    features: np.ndarray  # [T, d_in] float16 or float32
    segment: np.ndarray  # [T] c(i): as annotated, or as the encoder counts it (`segmented`)
    recording: np.ndarray | None = None  # [T] of the stream


def read_training_takes(stream: StreamReader, selected: set[str], path: Path) -> list[TrainingTake]:
    """Return the takes to pretrain on, in a memory map at `path`; none of a single token."""
    numbers = [n for n, take_id in enumerate(stream.takes) if take_id in selected]
    usable = [n for n in numbers if stream.lengths[n] >= 2]
    if len(usable) < len(numbers):
        say(f"pretrain: {len(numbers) - len(usable)} takes of fewer than 2 tokens are left out")
    if not usable:
        raise InputError(
            f"{stream.path}: no take to pretrain on; the train and pretrain splits are empty"
        )
    if path.exists() and not intact(path):
        put_aside(path, "is damaged, it is not what was copied")
    if not path.exists():
        copy_features(stream, [stream.takes[n] for n in usable], path)
    table = np.memmap(path, stream.dtype, mode="c").reshape(-1, stream.info.width)
    ends = np.cumsum([stream.lengths[n] for n in usable])
    takes = []
    for n, features in zip(usable, np.split(np.asarray(table), ends[:-1]), strict=True):
        layout = stream.read_layout(stream.takes[n])
        takes.append(TrainingTake(n, layout.take_id, features, layout.segment, layout.recording))
    return takes


def copy_features(stream: StreamReader, takes: Sequence[str], path: Path) -> None:
    """Write the features of takes one after the other: Parquet cannot be mapped into memory.

    Those that are not finite are named here, once, not met in the middle of training.
    """
    with sealed_file(path) as partial, partial.open("wb") as file:
        read = stream.read_many(takes)
        for take in track(read, "copy for training", total=len(takes), unit="take"):
            if not np.isfinite(take.features).all():
                raise InputError(
                    f"{stream.path}: take {take.take_id} has features that are not finite; "
                    "extract it again or leave it out"
                )
            file.write(take.features.astype(stream.dtype).tobytes())


def segmented(takes: Sequence[TrainingTake], encoder: ProcedureEncoder) -> list[TrainingTake]:
    """Return the takes with the segments that the encoder's attention and positions use."""
    return [
        replace(t, segment=encoder.segments(t.features, t.segment, t.take_id, t.recording))
        for t in takes
    ]


# Views: what an epoch shows of a take, segment by segment.


@dataclass(frozen=True, eq=False)
class Piece:
    """Tokens [start, stop) of a segment; `shift` [d_in] is added where another take shows them."""

    take: TrainingTake
    start: int
    stop: int
    offset: int = 0  # r(i) of the first token: more where the segment's beginning is cut off
    shift: np.ndarray | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def features(self) -> np.ndarray:
        """Return features [n, d_in] as stored, without the shift."""
        return self.take.features[self.start : self.stop]

    def cut(self, first: int, last: int) -> Piece:
        """Return the tokens from `first` up to `last`, or to the piece's end."""
        start, stop = self.start + first, min(self.start + last, self.stop)
        return replace(self, start=start, stop=stop, offset=self.offset + first)


@dataclass(frozen=True, eq=False)
class TakeView:
    """What an epoch shows of a take: pieces of its segments, or what stands in for them.

    In what is shown, c(i) counts from 0 (as in the release); r(i) is the place in the segment.
    """

    take: TrainingTake
    pieces: Sequence[Piece]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


def segments_of(take: TrainingTake) -> list[Piece]:
    """Return the segments of a take, whole."""
    starts, lengths = runs(take.segment)
    return [Piece(take, a, a + n) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]


def view(
    take: TrainingTake, epoch: int, config: PjepaConfig, exchange: Exchange | None = None
) -> TakeView:
    """Return this epoch's view of a take: `exchange`, `max_run`, `max_segments`, `crop_tokens`."""
    pieces = exchange.pieces_of(take, epoch) if exchange else segments_of(take)
    rng = np.random.default_rng([config.seed, WINDOW, epoch, take.number])
    if config.max_run is not None:
        pieces = [piece.cut(0, config.max_run) for piece in pieces]
    if config.max_segments is not None:
        first = int(rng.integers(max(0, len(pieces) - config.max_segments) + 1))
        pieces = pieces[first : first + config.max_segments]
    if config.crop_tokens is not None:
        spare = sum(map(len, pieces)) - config.crop_tokens
        pieces = _window(pieces, int(rng.integers(max(0, spare) + 1)), config.crop_tokens)
    return TakeView(take, pieces)


def _window(pieces: Sequence[Piece], start: int, length: int) -> list[Piece]:
    """Return `length` tokens of pieces from token `start` on."""
    inside = []
    for piece in pieces:
        first, last = max(start, 0), min(start + length, len(piece))
        if first < last:
            inside.append(piece.cut(first, last))
        start -= len(piece)
    return inside


# Steps of an epoch, and the batches of a step.


def epoch_steps(
    takes: Sequence[TrainingTake],
    epoch: int,
    config: PjepaConfig,
    exchange: Exchange | None = None,
) -> list[list[TakeView]]:
    """Return all takes once in random order; a step is `accumulate` forward passes."""
    order = np.random.default_rng([config.seed, ORDER, epoch]).permutation(len(takes))
    views = [view(takes[number], epoch, config, exchange) for number in order]
    passes = forward_passes([v for v in views if len(v) >= 2], config)
    if not passes:
        raise InputError(
            "pretrain: every take has fewer than two tokens after cropping: nothing to mask; raise "
            "pjepa.max_run and pjepa.max_segments, or use longer takes"
        )
    starts = range(0, len(passes), config.accumulate)
    grouped = [passes[first : first + config.accumulate] for first in starts]
    return [[each for views in group for each in views] for group in grouped]


def forward_passes(views: Sequence[TakeView], config: PjepaConfig) -> list[list[TakeView]]:
    """Return views in order, as many together as token budget and `batch_takes` allow."""
    passes: list[list[TakeView]] = []
    tokens = 0
    most = config.batch_takes or len(views)
    for each in views:
        tokens += len(each)
        if not passes or tokens > config.batch_tokens or len(passes[-1]) >= most:
            passes.append([])
            tokens = len(each)
        passes[-1].append(each)
    return passes


Tokens = Callable[[Sequence[Piece]], Tensor]  # features [N, d_in] float32 of pieces, unshifted


def pack(views: Sequence[TakeView], epoch: int, config: PjepaConfig, tokens: Tokens) -> Batch:
    """Return views laid end to end with newly drawn targets; no views: an empty batch."""
    lengths = tuple(len(each) for each in views)
    pieces = [piece for each in views for piece in each.pieces]
    segment = [np.full(len(p), number) for v in views for number, p in enumerate(v.pieces)]
    offset = [piece.offset + np.arange(len(piece)) for piece in pieces]
    index = [np.arange(length) for length in lengths]
    layout = Layout(lengths, _joined(segment), _joined(offset), _joined(index))
    targets = []
    for each in views:
        rng = np.random.default_rng([config.seed, MASK, epoch, each.take.number])
        targets.append(random_targets(len(each), config.mask_ratio, rng))
    mask = mask_of(_joined(targets, np.bool_), lengths)
    pairs = pairs_of(config.neighbours, mask.context, layout) if config.neighbours else None
    return Batch(shifted(tokens(pieces), pieces), layout, mask, pairs)


def _joined(parts: Sequence[np.ndarray], dtype: type[np.generic] = np.int64) -> Tensor:
    return torch.from_numpy(np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype))


def shifted(features: Tensor, pieces: Sequence[Piece]) -> Tensor:
    """Return the packed tokens [N, d_in] of pieces, every piece with its shift."""
    if all(piece.shift is None for piece in pieces):
        return features
    none = np.zeros(features.shape[1], np.float32)
    shifts = np.stack([none if piece.shift is None else piece.shift for piece in pieces])
    sizes = torch.tensor([len(piece) for piece in pieces])
    added = sent(torch.from_numpy(shifts), features.device)  # [pieces, d_in]
    return features + added.repeat_interleave(
        sent(sizes, features.device), dim=0, output_size=len(features)
    )
