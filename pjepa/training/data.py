"""What training reads: whole takes, or the part of them an epoch shows.

All randomness is keyed, so order, windows and masks never depend on how the work is cut: by
(seed, epoch) for the order, by (seed, epoch, take) for windows and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pjepa.config.pjepa import PjepaConfig
from pjepa.errors import InputError
from pjepa.model.jepa import Batch
from pjepa.model.layout import Layout
from pjepa.model.masking import targets
from pjepa.progress import say
from pjepa.runs import runs
from pjepa.streams.copy import arrow_copy, copied_features
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import StreamReader

ORDER, MASK, WINDOW = 0, 1, 2  # what a random stream is for


@dataclass(frozen=True)
class TrainingTake:
    """One take, memory-mapped at the stream's own precision."""

    number: int  # place in the stream: the key of its random windows and masks
    take_id: str
    features: np.ndarray  # [T, d_in] float16 or float32
    segment: np.ndarray  # [T] c(i): first the stream's, then the one attention uses


@dataclass(frozen=True)
class View:
    """What an epoch shows of a take: all of it, or the tokens at `keep`."""

    take: TrainingTake
    keep: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.take.segment if self.keep is None else self.keep)

    def features(self) -> np.ndarray:
        """[T, d_in] float32."""
        shown = self.take.features if self.keep is None else self.take.features[self.keep]
        return shown.astype(np.float32)

    def segment(self) -> np.ndarray:
        """[T] c(i), counted from 0 in what is shown (as in the release)."""
        if self.keep is None:
            return self.take.segment
        return self.take.segment[self.keep] - self.take.segment[self.keep[0]]

    def offset(self) -> np.ndarray:
        """[T] r(i), the place in the segment, also when its beginning is cut off."""
        offset = token_offsets(self.take.segment)
        return offset if self.keep is None else offset[self.keep]


def read_training_takes(stream: StreamReader, wanted: set[str], copy: Path) -> list[TrainingTake]:
    """The takes to pretrain on, through a copy at `copy`; one token alone cannot be hidden."""
    numbers = [n for n, take_id in enumerate(stream.takes) if take_id in wanted]
    chosen = [n for n in numbers if stream.lengths[n] >= 2]
    if len(chosen) < len(numbers):
        say(f"pretrain: {len(numbers) - len(chosen)} takes of fewer than 2 tokens are left out")
    if not chosen:
        raise InputError(
            f"{stream.path}: no take to pretrain on; the train and pretrain splits are empty"
        )
    source = arrow_copy(stream, [stream.takes[n] for n in chosen], copy)
    return [
        TrainingTake(n, stream.takes[n], features, stream.read_layout(stream.takes[n]).segment)
        for n, features in zip(chosen, copied_features(source), strict=True)
    ]


def with_segments(
    takes: Sequence[TrainingTake], segments: Callable[[TrainingTake], np.ndarray]
) -> list[TrainingTake]:
    """The same takes with the segments an encoder's attention and positions use."""
    return [replace(take, segment=segments(take)) for take in takes]


def view(take: TrainingTake, epoch: int, config: PjepaConfig) -> View:
    """What this epoch shows of a take: `max_run`, then `max_segments`, then `crop_tokens`."""
    if config.max_run is None and config.max_segments is None and config.crop_tokens is None:
        return View(take)
    rng = np.random.default_rng([config.seed, WINDOW, epoch, take.number])
    keep = np.arange(len(take.segment))
    if config.max_run is not None:
        keep = keep[token_offsets(take.segment) < config.max_run]
    if config.max_segments is not None:
        starts, lengths = runs(take.segment[keep])
        first = int(rng.integers(max(0, len(starts) - config.max_segments) + 1))
        last = min(first + config.max_segments, len(starts)) - 1
        keep = keep[starts[first] : starts[last] + lengths[last]]
    if config.crop_tokens is not None:
        start = int(rng.integers(max(0, len(keep) - config.crop_tokens) + 1))
        keep = keep[start : start + config.crop_tokens]
    return View(take, keep)


def epoch_steps(takes: Sequence[TrainingTake], epoch: int, config: PjepaConfig) -> list[list[View]]:
    """All takes once, in random order; a step is `accumulate` forward passes' worth of them."""
    order = np.random.default_rng([config.seed, ORDER, epoch]).permutation(len(takes))
    views = [view(takes[place], epoch, config) for place in order]
    passes = forward_passes([v for v in views if len(v) >= 2], config)
    grouped = [
        passes[first : first + config.accumulate]
        for first in range(0, len(passes), config.accumulate)
    ]
    return [[v for part in group for v in part] for group in grouped]


def forward_passes(views: Sequence[View], config: PjepaConfig) -> list[list[View]]:
    """Views in their order, as many together as token budget and `batch_takes` allow."""
    passes: list[list[View]] = []
    tokens = 0
    most = config.batch_takes or len(views)
    for shown in views:
        tokens += len(shown)
        if not passes or tokens > config.batch_tokens or len(passes[-1]) >= most:
            passes.append([])
            tokens = len(shown)
        passes[-1].append(shown)
    return passes


def pack(views: Sequence[View], epoch: int, config: PjepaConfig, d_in: int) -> Batch:
    """Views laid end to end with freshly drawn targets; none at all is an empty batch."""
    features, hidden, segments, offsets, index = (
        [np.zeros((0, d_in), np.float32)],
        *[[np.zeros(0, np.int64)] for _ in range(4)],
    )
    for shown in views:
        rng = np.random.default_rng([config.seed, MASK, epoch, shown.take.number])
        features.append(shown.features())
        segments.append(shown.segment())
        offsets.append(shown.offset())
        index.append(np.arange(len(shown)))
        hidden.append(targets(config.masking, segments[-1], config.mask_ratio, rng))
    return Batch(
        torch.from_numpy(np.concatenate(features)),
        torch.from_numpy(np.concatenate(hidden).astype(bool)),
        Layout(
            tuple(len(shown) for shown in views),
            *(torch.from_numpy(np.concatenate(x)).long() for x in (segments, offsets, index)),
        ),
    )


def packed_steps(
    steps: Sequence[Sequence[View]], epoch: int, config: PjepaConfig, d_in: int
) -> Iterator[list[Batch]]:
    """Every step as the batches of its forward passes, at least one."""
    for views in steps:
        yield [pack(part, epoch, config, d_in) for part in forward_passes(views, config) or [[]]]


def token_statistics(takes: Sequence[TrainingTake]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every input channel over all training tokens."""
    count = sum(len(take.features) for take in takes)
    mean = sum(take.features.sum(axis=0, dtype=np.float64) for take in takes) / count
    square = sum(((take.features.astype(np.float64) - mean) ** 2).sum(axis=0) for take in takes)
    return np.asarray(mean), np.maximum(np.sqrt(square / count), 1e-6)


def take_share(takes: Sequence[TrainingTake]) -> float:
    """How much of the variance is constant inside a take (camera, person, light), 0 to 1."""
    mean, std = token_statistics(takes)
    count = sum(len(take.features) for take in takes)
    between = sum(
        len(take.features) * (take.features.mean(axis=0, dtype=np.float64) - mean) ** 2
        for take in takes
    )
    return float((between / count).sum() / (std**2).sum())
