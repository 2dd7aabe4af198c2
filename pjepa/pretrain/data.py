"""What training reads: whole takes, or the part of them an epoch shows.

All randomness is keyed, so order, windows and masks never depend on how the work is cut: by
(seed, epoch) for the order, by (seed, epoch, take) for windows and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pjepa.core.runs import runs, token_offsets
from pjepa.model.attention import Layout
from pjepa.model.masking import mask_of, random_targets
from pjepa.model.neighbours import pairs_of
from pjepa.model.objective import Batch
from pjepa.pretrain.config import PjepaConfig
from pjepa.storage.sealed import intact, put_aside, sealed_file
from pjepa.streams.provenance import feature_type
from pjepa.streams.stream import StreamReader, Take
from pjepa.ui.console import InputError, say, track
from pjepa.ui.transfer import sent

if TYPE_CHECKING:
    from pjepa.pretrain.exchange import Exchange

# An Arrow IPC copy of the features training reads: Parquet cannot be mapped into memory.


def arrow_copy(stream: StreamReader, takes: Iterable[str], path: Path) -> pa.MemoryMappedFile:
    """Return the memory-mapped copy of `takes`, one record batch per take.

    It is written unless an undamaged one exists.

    Non-finite features are named here, once, not met in the middle of training.
    """
    if path.exists() and not intact(path):
        put_aside(path, "is damaged, it is not what was copied")
    if not path.exists():
        kind = feature_type(stream.info.width, stream.dtype)
        schema = pa.schema([pa.field("feature", kind, nullable=False)])
        wanted = list(takes)
        with (
            sealed_file(path) as partial,
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            read = stream.read_many(wanted)
            for take in track(read, "copy for training", total=len(wanted), unit="take"):
                flat = pa.array(_finite_features(stream, take).reshape(-1))
                column = pa.FixedSizeListArray.from_arrays(flat, type=kind)
                writer.write_batch(pa.record_batch([column], schema=schema))
    return pa.memory_map(str(path))


def _finite_features(stream: StreamReader, take: Take) -> np.ndarray:
    """Return [T, D] at the stream's precision."""
    if not np.isfinite(take.features).all():
        raise InputError(
            f"{stream.path}: take {take.take_id} has features that are not finite; "
            "extract it again or leave it out"
        )
    return take.features.astype(stream.dtype)


def copied_features(source: pa.MemoryMappedFile) -> Iterator[np.ndarray]:
    """Yield views [T, D] of the copied takes, in the order they were given; nothing is read yet."""
    file = pa.ipc.open_file(source)
    width = file.schema.field("feature").type.list_size
    for number in range(file.num_record_batches):
        column = file.get_batch(number).column(0)
        yield column.flatten().to_numpy(zero_copy_only=True).reshape(-1, width)


# Training takes: what is read of the stream, and what is measured over all of it.

LEAST_STD = 1e-6  # of a channel; tokens are divided by it


@dataclass(frozen=True)
class TrainingTake:
    """One take, memory-mapped at the stream's own precision."""

    number: int  # place in the stream: the key of its random windows and masks
    take_id: str
    features: np.ndarray  # [T, d_in] float16 or float32
    segment: np.ndarray  # [T] c(i): first the stream's, then the one attention uses
    recording: np.ndarray | None = None  # [T] of the stream


def read_training_takes(stream: StreamReader, wanted: set[str], copy: Path) -> list[TrainingTake]:
    """Return the takes to pretrain on, through a copy at `copy`; none of a single token."""
    numbers = [n for n, take_id in enumerate(stream.takes) if take_id in wanted]
    chosen = [n for n in numbers if stream.lengths[n] >= 2]
    if len(chosen) < len(numbers):
        say(f"pretrain: {len(numbers) - len(chosen)} takes of fewer than 2 tokens are left out")
    if not chosen:
        raise InputError(
            f"{stream.path}: no take to pretrain on; the train and pretrain splits are empty"
        )
    source = arrow_copy(stream, [stream.takes[n] for n in chosen], copy)
    layouts = [stream.read_layout(stream.takes[n]) for n in chosen]
    return [
        TrainingTake(n, take.take_id, features, take.segment, take.recording)
        for n, take, features in zip(chosen, layouts, copied_features(source), strict=True)
    ]


def with_segments(
    takes: Sequence[TrainingTake], segments: Callable[[TrainingTake], np.ndarray]
) -> list[TrainingTake]:
    """Return the same takes with the segments an encoder's attention and positions use."""
    return [replace(take, segment=segments(take)) for take in takes]


def token_statistics(takes: Sequence[TrainingTake]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of every input channel over all training tokens."""
    count = sum(len(take.features) for take in takes)
    mean = sum(take.features.sum(axis=0, dtype=np.float64) for take in takes) / count
    square = sum(((take.features.astype(np.float64) - mean) ** 2).sum(axis=0) for take in takes)
    return np.asarray(mean), np.maximum(np.sqrt(square / count), LEAST_STD)


def take_share(takes: Sequence[TrainingTake]) -> float:
    """Return the share of variance that is constant inside a take (camera, light), 0 to 1."""
    mean, std = token_statistics(takes)
    count = sum(len(take.features) for take in takes)
    between = sum(
        len(take.features) * (take.features.mean(axis=0, dtype=np.float64) - mean) ** 2
        for take in takes
    )
    return float((between / count).sum() / (std**2).sum())


# Views: what an epoch shows of a take, as pieces of this take or of others.


@dataclass(frozen=True, eq=False)
class Piece:
    """Tokens [start, stop) of a take; `means` if they get the mean of another take."""

    take: TrainingTake
    start: int
    stop: int
    means: tuple[np.ndarray, np.ndarray] | None = None  # [d_in] of their own take and the other

    def __len__(self) -> int:
        return self.stop - self.start

    def features(self) -> np.ndarray:
        """Return features [n, d_in] as stored, without the shift."""
        return self.take.features[self.start : self.stop]

    def shift(self) -> np.ndarray:
        """Return what is added to the features [d_in]."""
        own, other = self.means or (np.zeros(self.take.features.shape[1]),) * 2
        return np.asarray(other - own, np.float32)


@dataclass(frozen=True, eq=False)
class TakeView:
    """What an epoch shows of a take: pieces of it, or what stands in for them."""

    take: TrainingTake
    pieces: tuple[Piece, ...]
    segment: np.ndarray  # [T] c(i), counted from 0 in what is shown (as in the release)
    offset: np.ndarray  # [T] r(i), the place in the segment, also when its beginning is cut off

    def __len__(self) -> int:
        return len(self.segment)

    def at(self, keep: np.ndarray) -> TakeView:
        """Return the view of the tokens `keep` only, in order."""
        sizes = [len(piece) for piece in self.pieces]
        owner = np.repeat(np.arange(len(sizes)), sizes)[keep]
        place = np.concatenate([np.arange(piece.start, piece.stop) for piece in self.pieces])[keep]
        ends = np.flatnonzero((np.diff(owner) != 0) | (np.diff(place) != 1)) + 1
        parts = (
            replace(self.pieces[owner[a]], start=int(place[a]), stop=int(place[b - 1]) + 1)
            for a, b in pairwise([0, *ends.tolist(), len(keep)])
        )
        shown = self.segment[keep]
        return TakeView(self.take, tuple(parts), shown - shown[0], self.offset[keep])


def whole(take: TrainingTake) -> TakeView:
    """Return the view of all of a take."""
    pieces = (Piece(take, 0, len(take.segment)),)
    return TakeView(take, pieces, take.segment, token_offsets(take.segment))


def exchanged(take: TrainingTake, pieces: tuple[Piece, ...]) -> TakeView:
    """Return the view of a take with `pieces` in place of its segments."""
    segment = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    return TakeView(take, pieces, segment, token_offsets(segment))


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
        hidden.append(random_targets(len(shown), config.mask_ratio, rng))
    target = torch.from_numpy(np.concatenate(hidden).astype(bool))
    lengths = tuple(len(shown) for shown in views)
    places = (torch.from_numpy(np.concatenate(x)).long() for x in (segments, offsets, index))
    layout, mask = Layout(lengths, *places), mask_of(target, lengths)
    pairs = pairs_of(config.neighbours, mask.context, layout) if config.neighbours else None
    features = shifted((tokens or TokenPacking()).packed(views, d_in), views)
    return Batch(features, layout, mask, pairs)


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
