"""Packed batches of whole takes. All randomness is keyed, so order and masks never depend on
how the work is cut: by (seed, epoch) for the order, by (seed, epoch, take) for the masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pjepa.errors import InputError
from pjepa.model.jepa import Batch
from pjepa.model.layout import Layout
from pjepa.model.masking import uniform_targets
from pjepa.streams.segments import attention_segments, token_offsets
from pjepa.streams.store import StreamReader, Take

ORDER, MASK = 0, 1  # what a random stream is for


@dataclass(frozen=True)
class TrainingTake:
    """One take in memory at the stream's own precision."""

    number: int  # place in the stream: the key of its random masks
    take_id: str
    features: np.ndarray  # [T, d_in] float16 or float32
    segment: np.ndarray  # [T] c(i), counted over the take with gaps as segments of their own
    offset: np.ndarray  # [T] r(i)


def training_take(number: int, take: Take, dtype: np.dtype | type) -> TrainingTake:
    """A take as training sees it; NaN or infinite features are named, not trained on."""
    if not np.isfinite(take.features).all():
        raise InputError(f"take {take.take_id}: features are not finite; extract it again")
    segment = attention_segments(take.segment)
    offset = token_offsets(segment)
    return TrainingTake(number, take.take_id, take.features.astype(dtype), segment, offset)


def read_training_takes(stream: StreamReader, wanted: set[str]) -> list[TrainingTake]:
    """The takes to pretrain on; those under two tokens cannot be masked and are left out."""
    takes = [
        training_take(number, stream.read(take_id), np.float16)
        for number, take_id in enumerate(stream.takes)
        if take_id in wanted and stream.lengths[number] >= 2
    ]
    if not takes:
        raise InputError(
            f"{stream.path}: no take to pretrain on; the train and pretrain splits are empty"
        )
    return takes


def token_statistics(takes: Sequence[TrainingTake]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every input channel over all training tokens."""
    count = sum(len(take.features) for take in takes)
    mean = sum(take.features.astype(np.float64).sum(axis=0) for take in takes) / count
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


def epoch_batches(
    takes: Sequence[TrainingTake], epoch: int, seed: int, mask_ratio: float, batch_tokens: int
) -> Iterator[Batch]:
    """All takes once, in random order, as many to a batch as the token budget allows."""
    order = np.random.default_rng([seed, ORDER, epoch]).permutation(len(takes))
    chosen: list[TrainingTake] = []
    for place in order:
        take = takes[place]
        if chosen and sum(len(t.features) for t in chosen) + len(take.features) > batch_tokens:
            yield pack(chosen, epoch, seed, mask_ratio)
            chosen = []
        chosen.append(take)
    yield pack(chosen, epoch, seed, mask_ratio)


def pack(takes: Sequence[TrainingTake], epoch: int, seed: int, mask_ratio: float) -> Batch:
    """Takes laid end to end with freshly drawn targets."""
    targets = [
        uniform_targets(
            len(take.features),
            mask_ratio,
            np.random.default_rng([seed, MASK, epoch, take.number]),
        )
        for take in takes
    ]
    return Batch(
        torch.from_numpy(np.concatenate([take.features for take in takes])).float(),
        torch.from_numpy(np.concatenate(targets)),
        Layout(
            tuple(len(take.features) for take in takes),
            torch.from_numpy(np.concatenate([take.segment for take in takes])),
            torch.from_numpy(np.concatenate([take.offset for take in takes])).long(),
            torch.cat([torch.arange(len(take.features)) for take in takes]),
        ),
    )
