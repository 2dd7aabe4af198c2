"""The `folder` source: own videos, labelled by one file of annotations or not at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from pjepa.core.tables import SPLITS, Classes
from pjepa.core.text import natural
from pjepa.storage.roots import inside
from pjepa.takes.annotations.files import read_annotations
from pjepa.takes.annotations.rows import MAPPING, Annotations, Marked
from pjepa.takes.annotations.text_files import Note, closest
from pjepa.takes.config import DataConfig, FolderConfig
from pjepa.takes.source import (
    Annotation,
    Source,
    TakeRows,
    below,
    drawn_groups,
    groups_file,
    lasting,
    late_notes,
    left_out,
    regrouped,
    take_row,
)
from pjepa.takes.sources.mstcn import FAR, background_id, read_bundle, read_mapping
from pjepa.ui.console import InputError
from pjepa.video.files import Measured, measured_videos, video_files

# Splits of own videos: given by rows or bundles, dealt into folds, or drawn; by whole groups.

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


def folder_source(own: FolderConfig, config: DataConfig, root: Path) -> Source:
    """Return every video of the folder as a take; unlabelled ones have the split `pretrain`."""
    folder = inside(root, own.path, "the data root")
    names = video_files(folder)
    if not names:
        raise InputError(f"{folder}: no video in it; set data.folder.path and the data root")
    found = Annotations()
    if own.labels is not None:
        labels = inside(folder, own.labels, "the videos' folder")
        found = read_annotations(labels, own.tier, own.frame_rate)
    by_video = _by_video(found.rows, names)
    here = {name: folder / name for name in names}
    measured = measured_videos(here, config.workers, config.max_gap_s)
    readable = [name for name in names if not measured[name].fault]
    faults = [measured[name].fault for name in names if measured[name].fault]
    skipped = left_out("no readable video", faults, config.missing)
    ids = _take_ids(names)
    classes = _classes(found, own, folder)
    _check_rates(by_video, measured, own)
    rows = {name: by_video.get(name, []) for name in readable}
    segments, empty = lasting(_segments(rows, ids, measured, own, classes))
    takes, told = _takes(rows, ids, config, root)
    ends = {ids[name]: measured[name].duration_s for name in readable}
    drawn = fill_splits(takes, segments, config)
    return Source(
        [measured[name].row(ids[name], below(own.path, name)) for name in readable],
        takes,
        segments,
        classes,
        skipped=skipped,
        notes=[*found.notes, *told, *empty, *late_notes(segments, ends), *drawn],
        listed=frozenset(found.vocabulary),
    )


def _segments(
    rows: Mapping[str, list[Marked]],
    ids: Mapping[str, str],
    measured: Mapping[str, Measured],
    own: FolderConfig,
    classes: Classes,
) -> list[Annotation]:
    """Return the labelled rows of every video, in seconds."""
    return [
        _segment(row, ids[name], own.frame_rate or measured[name].fps, measured[name], classes)
        for name, mine in rows.items()
        for row in mine
        if row.label is not None
    ]


def _takes(
    rows: Mapping[str, list[Marked]], ids: Mapping[str, str], config: DataConfig, root: Path
) -> tuple[list[dict[str, Any]], list[Note]]:
    """Return the takes with the fields given by rows, bundles and the file of groups."""
    own = config.folder
    takes = [_take(ids[name], mine) for name, mine in rows.items()]
    if own.splits is not None:
        splits = inside(inside(root, own.path), own.splits)
        videos = {key: [ids[name] for name in found] for key, found in _called(list(ids)).items()}
        given = bundled_splits(splits, config.fold, videos)
        takes = [{**take, "split": given.get(take["take_id"], take["split"])} for take in takes]
    if config.groups is None:
        return takes, []
    return regrouped(takes, groups_file(config, root))


def _called(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the videos by what labels and bundles may call them: a path in the folder, or a name.

    With or without suffix; a whole path stands for that video alone. macOS decomposes names.
    """
    called: dict[str, list[str]] = defaultdict(list)
    for name in names:
        path = PurePosixPath(name)
        for key in {path.name, path.with_suffix("").as_posix(), path.stem}:
            called[normalize("NFC", key)].append(name)
    return called | {normalize("NFC", name): [name] for name in names}


def _by_video(rows: Sequence[Marked], names: Sequence[str]) -> dict[str, list[Marked]]:
    """Return rows of every video; of several with one name, that of the label file's folder."""
    called = _called(names)
    found: dict[str, list[Marked]] = defaultdict(list)
    for row in rows:
        wanted = normalize("NFC", row.video.replace("\\", "/").removeprefix("./"))
        matches = called.get(wanted, [])
        if len(matches) > 1:
            beside = [name for name in matches if str(PurePosixPath(name).parent) == row.folder]
            matches = beside or matches
        if len(matches) != 1:
            what = f"stands for {', '.join(matches)}" if matches else "is not in the folder"
            hint = "" if matches else closest(wanted, names)
            raise InputError(f"{row.where}: video {row.video!r} {what}{hint}")
        found[matches[0]].append(row)
    return found


def _take_ids(names: Sequence[str]) -> dict[str, str]:
    """Return names without their suffix where these stay unique."""
    stems = [PurePosixPath(name).with_suffix("").as_posix() for name in names]
    count = Counter(stems)
    return {
        name: stem if count[stem] == 1 else name for name, stem in zip(names, stems, strict=True)
    }


def _classes(found: Annotations, own: FolderConfig, folder: Path) -> Classes:
    """Return the sorted labels; frame labels in the order of the mapping beside them, if any."""
    mapping = _mapping(found, own, folder)
    if mapping is not None:
        classes = read_mapping(mapping, own.background)
        for row in found.rows:
            if row.label is not None and row.label not in classes.names:
                hint = closest(row.label, classes.names)
                raise InputError(f"{row.where}: no class {row.label!r} in {mapping.name}{hint}")
        found.vocabulary |= dict.fromkeys(classes.names)
        return classes
    names = tuple(sorted({r.label for r in found.rows if r.label is not None}, key=natural))
    if own.background is not None and not names:
        return Classes(names, None)
    return Classes(names, background_id(names, own.background, folder))


def _mapping(found: Annotations, own: FolderConfig, folder: Path) -> Path | None:
    """Return the list of classes in or beside the folder of labels, where every frame has one."""
    if own.labels is None or not any(row.every for row in found.rows):
        return None
    labels = inside(folder, own.labels)
    places = [labels / MAPPING, labels.parent / MAPPING]
    return next((path for path in places if path.is_file()), None)


def _check_rates(
    by_video: Mapping[str, list[Marked]], measured: Mapping[str, Measured], own: FolderConfig
) -> None:
    """Raise an error if the number of frame labels does not match the video."""
    for name, rows in by_video.items():
        count = max((row.end for row in rows if row.every), default=0)
        video = measured[name]
        if not count or video.fault:
            continue
        rate = own.frame_rate or video.fps
        if abs(count / rate - video.duration_s) > max(2 / rate, FAR * video.duration_s):
            raise InputError(
                f"{rows[0].where}: {count:g} labels for {video.duration_s:.2f} s at {rate:g} per "
                "second; if they are at another rate, set data.folder.frame_rate (here "
                f"{count / video.duration_s:.3g})"
            )


def _segment(
    row: Marked, take_id: str, rate: float, video: Measured, classes: Classes
) -> Annotation:
    """Return a row in seconds; `rate` converts frame numbers, if it has them."""
    start, end = row.start, row.end
    if row.frames:
        start, end = start / rate, end / rate
    if not 0 <= start <= end < float("inf"):
        raise InputError(
            f"{row.where}: a segment from {start:g} to {end:g} s; expected 0 <= start <= end"
        )
    if start >= video.duration_s and start < end:
        raise InputError(
            f"{row.where}: starts at {start:g} s, but the video ends at {video.duration_s:.2f} s; "
            "are the times those of another video or frame rate?"
        )
    return Annotation(take_id, start, end, classes.names.index(str(row.label)))


def _take(take_id: str, rows: Sequence[Marked]) -> dict[str, Any]:
    """Return a take with the fields of its rows; raise an error if two rows disagree."""
    fields: dict[str, str] = {}
    for row in rows:
        for name, value in row.fields.items():
            if fields.setdefault(name, value) != value:
                raise InputError(
                    f"{row.where}: {name} {value!r}, but {fields[name]!r} in another row of "
                    f"{row.video!r}; one video has one"
                )
    split = fields.pop("split", "")
    if split and split not in SPLITS:
        known = f"{', '.join(SPLITS)}{closest(split, SPLITS)}"
        raise InputError(f"{rows[0].where}: split {split!r}; expected {known}")
    group = fields.pop("group", "") or fields.get("participant", "")
    return take_row(take_id, "folder", split, group=group, **fields)
