"""Takes whose labels the pooler sees: train takes, held-out train groups to judge, folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pjepa.core.tables import Classes
from pjepa.core.time_grid import cut_steps, token_segments, token_times
from pjepa.patches.store import cut_takes, read_patches, skipped_takes, take_file_name
from pjepa.pooler.examples import LabelledPatches
from pjepa.ui.errors import InputError

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
    train = takes[(takes["split"] == "train") & ~takes["take_id"].isin(skipped_takes(patches))]
    parts = {str(take): part for take, part in segments.groupby("take_id", sort=False)}
    jumps = cut_takes(patches)
    found: dict[bool, list[LabelledPatches]] = {False: [], True: []}
    for number, row in train.iterrows():
        part = parts.get(str(row["take_id"]))
        if part is None or not (part["label"] >= 0).any():
            continue
        take = _labelled(int(str(number)), row, part, patches, per_step, jumps)
        if (take.labels >= 0).any():
            found[bool(row["holdout"])].append(take)
    if not found[False]:
        raise InputError(
            "pooler.kind action: no train take outside the hold-out has a label; annotate some, "
            "or use pooler.kind=mean"
        )
    return PoolerTakes(tuple(found[False]), tuple(found[True]))


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
    segment = token_segments(token_times(steps, fps), limits)
    held = token_segments(token_times(steps * per_step, fps * per_step), limits)
    cuts = tuple(cut_steps(jumps.get(take_id, ()), fps))
    return LabelledPatches(number, take_id, str(row["group"]), file, segment, names[held], cuts)


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
    place = {groups[group]: rank % folds for rank, group in enumerate(order)}
    return {take.take_id: place[take.group] for take in takes}
