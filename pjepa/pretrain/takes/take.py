"""Training takes: what is read of the stream, and what is measured over all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pjepa.pretrain.takes.arrow_copy import arrow_copy, copied_features
from pjepa.streams.store import StreamReader
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say

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
