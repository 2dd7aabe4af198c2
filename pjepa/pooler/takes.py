"""Takes whose labels the pooler sees: train takes, held-out train groups to judge, folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjepa.core.runs import Span
from pjepa.core.tables import Classes
from pjepa.core.time import cut_ids, recordings, token_segments, token_times
from pjepa.patches.store import CUTS, SKIPPED, Half, noted, read_patches, take_file_name
from pjepa.pooler.action import padded
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.stored import pooled_spans
from pjepa.ui.console import InputError
from pjepa.ui.transfer import sent

# Training examples of the pooler: windows of memory-mapped patches with token labels.

CUT, ORDER = 0, 1  # what a random stream is for


@dataclass(frozen=True)
class LabelledPatches:
    """One take's patch file and the segments and labels of its tokens; -1 is unknown."""

    number: int  # place in the table of takes: the key of its random cuts
    take_id: str
    group: str
    file: Path
    recording: NDArray[np.int64]  # [steps] grows where time stamps jump
    segment: NDArray[np.int64]  # [steps] which annotated segment, of one recording
    labels: NDArray[np.int64]  # [steps * per_step]


@dataclass(frozen=True)
class Clip:
    """A window of one take."""

    take: LabelledPatches
    start: int
    stop: int

    def patches(self) -> Half:
        """Return the window's patches [n, cells, width], copied, with the file closed again."""
        stored = read_patches(self.take.file).patches
        return np.array(stored[self.start : self.stop])

    def labels(self) -> NDArray[np.int64]:
        """Return the labels of the window's tokens [n * per_step]."""
        per_step = len(self.take.labels) // len(self.take.segment)
        return self.take.labels[self.start * per_step : self.stop * per_step]


@dataclass(frozen=True)
class ClipBatch:
    """Windows side by side; `labels` is -1 where a token is padding or unknown."""

    patches: Tensor  # [B, n, cells, width] float16
    lengths: Tensor | None  # [B] real steps, None if all have n
    labels: Tensor  # [B, n * per_step]

    def to(self, device: str) -> ClipBatch:
        """Return the same batch on another device; nothing waits for the copies."""
        lengths = None if self.lengths is None else sent(self.lengths, device)
        return ClipBatch(sent(self.patches, device), lengths, sent(self.labels, device))


def cut(take: LabelledPatches, config: PoolerConfig, rng: np.random.Generator | None) -> list[Span]:
    """Return the windows of a take: those of extraction, or with `rng` another cut.

    None crosses a jump. They stay inside segments if `scope` asks for it, and always for
    `target: clip`, because a clip has one label.
    """
    inside = config.scope == "segment" or config.target == "clip"
    return pooled_spans(take.segment if inside else take.recording, config.window, rng)


def fixed_clips(takes: Sequence[LabelledPatches], config: PoolerConfig) -> list[Clip]:
    """Return the windows of extraction that hold a known label, in the order of the takes."""
    clips = [Clip(take, *span) for take in takes for span in cut(take, config, None)]
    return [clip for clip in clips if (clip.labels() >= 0).any()]


def epoch_clips(takes: Sequence[LabelledPatches], config: PoolerConfig, epoch: int) -> list[Clip]:
    """Return an epoch's windows that hold a known label, in random order."""
    clips = []
    for take in takes:
        rng = np.random.default_rng([config.seed, CUT, epoch, take.number])
        clips += [Clip(take, *span) for span in cut(take, config, rng)]
    labelled = [clip for clip in clips if (clip.labels() >= 0).any()]
    order = np.random.default_rng([config.seed, ORDER, epoch]).permutation(len(labelled))
    return [labelled[number] for number in order]


def clip_batches(clips: Sequence[Clip], size: int, workers: int) -> Iterator[ClipBatch]:
    """Yield batches in order, their windows read by several threads."""
    with ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(clips), size):
            chosen = clips[first : first + size]
            yield _batch(chosen, list(pool.map(Clip.patches, chosen)))


def _batch(clips: Sequence[Clip], windows: list[Half]) -> ClipBatch:
    patches, lengths = padded(windows)
    clip_labels = [clip.labels() for clip in clips]
    labels = np.full((len(clips), max(len(label) for label in clip_labels)), -1, np.int64)
    for row, label in enumerate(clip_labels):
        labels[row, : len(label)] = label
    return ClipBatch(
        torch.from_numpy(patches),
        None if lengths is None else torch.from_numpy(lengths),
        torch.from_numpy(labels),
    )


FOLDS = 0xF01D  # what a random stream is for


@dataclass(frozen=True)
class PoolerTakes:
    """Labelled train takes without hold-out, and the held-out ones that judge."""

    fit: tuple[LabelledPatches, ...]
    holdout: tuple[LabelledPatches, ...]


def pooler_takes(
    takes: pd.DataFrame,
    segments: pd.DataFrame,
    classes: Classes,
    patches: Path,
    per_step: int,
) -> PoolerTakes:
    """Return the train takes with a known label; no other take is opened."""
    _check_labels(segments, len(classes.names))
    train = takes[(takes["split"] == "train") & ~takes["take_id"].isin(noted(patches, SKIPPED))]
    by_take = {str(take): own for take, own in segments.groupby("take_id", sort=False)}
    jumps = noted(patches, CUTS)
    labelled: dict[bool, list[LabelledPatches]] = {False: [], True: []}
    for number, row in train.iterrows():
        own = by_take.get(str(row["take_id"]))
        if own is None or not (own["label"] >= 0).any():
            continue
        take = _labelled(int(str(number)), row, own, patches, per_step, jumps)
        if (take.labels >= 0).any():
            labelled[bool(row["holdout"])].append(take)
    if not labelled[False]:
        raise InputError(
            "pooler.kind action: no train take outside the hold-out has a label; annotate some, "
            "or use pooler.kind=mean"
        )
    return PoolerTakes(tuple(labelled[False]), tuple(labelled[True]))


def _labelled(
    number: int,
    row: pd.Series,
    segments: pd.DataFrame,
    patches: Path,
    per_step: int,
    jumps: Mapping[str, Sequence[float]],
) -> LabelledPatches:
    take_id = str(row["take_id"])
    file = patches / take_file_name(take_id)
    stored = read_patches(file)
    limits = segments[["start_s", "end_s"]].to_numpy(np.float64)
    names = np.append(segments["label"].to_numpy(np.int64), -1)
    steps, fps = len(stored.patches), stored.info.tokens_fps
    times, jumps_s = token_times(steps, fps), jumps.get(take_id, ())
    segment = cut_ids(token_segments(times, limits), jumps_s, fps)
    held = token_segments(token_times(steps * per_step, fps * per_step), limits)
    recording = recordings(times, jumps_s)
    group = str(row["group"])
    return LabelledPatches(number, take_id, group, file, recording, segment, names[held])


def _check_labels(segments: pd.DataFrame, classes: int) -> None:
    wrong = segments[(segments["label"] < -1) | (segments["label"] >= classes)]
    if len(wrong):
        first = wrong.iloc[0]
        raise InputError(
            f"take {first['take_id']}: label {first['label']} of segment {first['segment']}; "
            f"expected -1 (unknown) to {classes - 1}, the classes of classes.json"
        )


def fold_of(takes: Sequence[LabelledPatches], folds: int, seed: int) -> dict[str, int]:
    """Return the fold of every take id: whole groups at random, folds of about equal size."""
    groups = sorted({take.group for take in takes})
    if len(groups) < folds:
        raise InputError(
            f"pooler.folds {folds}: the train takes have {len(groups)} groups; use no more"
        )
    order = np.random.default_rng([seed, FOLDS]).permutation(len(groups))
    of_group = {groups[group]: rank % folds for rank, group in enumerate(order)}
    return {take.take_id: of_group[take.group] for take in takes}
