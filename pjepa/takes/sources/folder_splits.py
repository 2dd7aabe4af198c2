"""Splits of own videos: given by rows or bundles, dealt into folds, or drawn; by whole groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd

from pjepa.core.text import natural
from pjepa.takes.annotations.notes import Note
from pjepa.takes.config import DataConfig, FolderConfig
from pjepa.takes.groups import TakeRows
from pjepa.takes.holdout import drawn_groups
from pjepa.takes.source import Annotation
from pjepa.takes.sources.framewise import read_bundle
from pjepa.ui.errors import InputError

TEST_DRAW, VAL_DRAW, FOLD_DRAW = 0x7E57, 0x0A1D, 0xF01D  # seeds of the draws


def bundled_splits(
    folder: Path, fold: int, takes_of: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the split of every take named in the bundles of a fold.

    `takes_of` maps names of videos to the ids of the takes that go by them.
    """
    found: dict[str, str] = {}
    for split in ("train", "test"):
        for name in read_bundle(folder, split, fold):
            takes = takes_of.get(normalize("NFC", name), ())
            if len(takes) != 1:
                what = f"{name!r} stands for {', '.join(takes)}" if takes else f"no video {name!r}"
                raise InputError(f"{folder}, {split}.split{fold}.bundle: {what}")
            (take,) = takes
            if found.setdefault(take, split) != split:
                raise InputError(f"{folder}: {name!r} is in train and in test of fold {fold}")
    return found


def fill_splits(takes: TakeRows, segments: list[Annotation], config: DataConfig) -> list[Note]:
    """Fill in the missing splits; return notes for the user."""
    own = config.folder
    labelled = {segment.take_id for segment in segments}
    open_ = [take for take in takes if not take["split"]]
    for take in open_:
        if take["take_id"] not in labelled:
            take["split"] = "pretrain"
    rest = [take for take in open_ if not take["split"]]
    notes: list[Note] = []
    if len(open_) > len(rest):
        notes.append(Note(f"{len(open_) - len(rest)} takes without labels: split pretrain"))
    given = [take for take in takes if take["split"] in ("train", "val", "test")]
    if given and own.folds is not None:
        raise InputError(
            f"take {given[0]['take_id']}: split {given[0]['split']}, but data.folder.folds assigns "
            "all takes; remove the splits from the annotations, or leave data.folder.folds empty"
        )
    if rest and given:
        raise InputError(
            f"take {rest[0]['take_id']}: labelled but without a split, which others have; "
            "give all of them one, or none"
        )
    if rest:
        told = _dealt(rest, config) if own.folds is not None else ""
        notes.append(Note(_drawn(rest, segments, own, config.seed, told)))
    return notes


def _dealt(takes: TakeRows, config: DataConfig) -> str:
    """Deal whole groups into folds, seeded; the groups of `data.fold` are tested."""
    groups = sorted({take["group"] for take in takes}, key=natural)
    folds = len(groups) if config.folder.folds == "groups" else int(config.folder.folds or 0)
    if len(groups) < max(2, folds):
        raise InputError(
            f"data.folder.folds {config.folder.folds}: {len(groups)} groups among the labelled "
            "takes; name participants or groups, or ask for fewer folds"
        )
    if config.fold > folds:
        raise InputError(f"data.fold {config.fold}: there are {folds} folds (data.folder.folds)")
    order = groups
    if config.folder.folds != "groups":  # leaving one out, fold k is the k-th name
        rng = np.random.default_rng([config.seed, FOLD_DRAW])
        order = [groups[place] for place in rng.permutation(len(groups))]
    tested = set(order[config.fold - 1 :: folds])
    for take in takes:
        take["split"] = "test" if take["group"] in tested else "train"
    return f"fold {config.fold} of {folds} by group"


def _drawn(
    takes: TakeRows, segments: Sequence[Annotation], own: FolderConfig, seed: int, dealt: str
) -> str:
    """Draw whole groups for test, then for val, such that train still covers every class."""
    table = pd.DataFrame([vars(segment) for segment in segments])
    if not dealt:
        for take in takes:
            take["split"] = "train"
    shares = {"test": (0.0 if dealt else own.test, TEST_DRAW), "val": (own.val, VAL_DRAW)}
    for split, (share, draw) in shares.items():
        if not share:
            continue
        held = drawn_groups(pd.DataFrame(takes), table, share, [seed, draw])
        for take in takes:
            if take["split"] == "train" and take["group"] in held:
                take["split"] = split
    counts = {split: sum(t["split"] == split for t in takes) for split in ("train", "val", "test")}
    if not counts["test"] and not counts["val"]:
        return (
            "no take could be set aside for test: every group shows a class of its own; "
            "probes have nothing to be scored on"
        )
    told = ", ".join(f"{count} {split}" for split, count in counts.items() if count)
    return f"{dealt or 'splits drawn by group'}, seed {seed}: {told}"
