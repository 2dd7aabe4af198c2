"""The `folder` source: own videos, labelled by one file of annotations or not at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize

import numpy as np

from pjepa.core.tables import SPLITS, Classes
from pjepa.core.text import natural
from pjepa.storage.roots import inside
from pjepa.takes.annotations.files import read_annotations
from pjepa.takes.annotations.rows import MAPPING, AnnotationRow, Annotations
from pjepa.takes.annotations.text_files import Note, check_span, closest
from pjepa.takes.config import DataConfig, FolderConfig
from pjepa.takes.source import (
    Annotation,
    Source,
    SourceBuilder,
    TakeRows,
    below,
    drawn_groups,
    groups_file,
    regrouped,
    take_row,
)
from pjepa.takes.sources.mstcn import FAR, background_id, read_bundle, read_mapping
from pjepa.ui.console import InputError
from pjepa.video.files import Measured, measured_videos, video_files

# Splits of own videos: given by rows or bundles, dealt into folds, or drawn; by whole groups.

TEST_DRAW, VAL_DRAW, FOLD_DRAW = 0x7E57, 0x0A1D, 0xF01D  # seeds of the draws


def bundled_splits(folder: Path, fold: int, ids: Mapping[str, str]) -> dict[str, str]:
    """Return the split of every take named in the bundles of a fold; `ids` are those of videos."""
    called = _called(list(ids))
    splits: dict[str, str] = {}
    for split in ("train", "test"):
        for name in read_bundle(folder, split, fold):
            takes = [ids[video] for video in called.get(normalize("NFC", name), ())]
            if len(takes) != 1:
                what = f"{name!r} stands for {', '.join(takes)}" if takes else f"no video {name!r}"
                raise InputError(f"{folder}, {split}.split{fold}.bundle: {what}")
            if splits.setdefault(takes[0], split) != split:
                raise InputError(f"{folder}: {name!r} is in train and in test of fold {fold}")
    return splits


def fill_splits(takes: TakeRows, segments: list[Annotation], config: DataConfig) -> list[Note]:
    """Fill in the missing splits; return notes for the user."""
    labelled = {segment.take_id for segment in segments}
    rest = [take for take in takes if not take["split"] and take["take_id"] in labelled]
    unlabelled = [take for take in takes if not take["split"] and take["take_id"] not in labelled]
    for take in unlabelled:
        take["split"] = "pretrain"
    notes = []
    if unlabelled:
        notes.append(Note(f"{len(unlabelled)} takes without labels: split pretrain"))
    given = [take for take in takes if take["split"] in ("train", "val", "test")]
    if given and config.folder.folds is not None:
        raise InputError(
            f"take {given[0]['take_id']}: split {given[0]['split']}, but data.folder.folds assigns "
            "all takes; remove the splits from the annotations, or leave data.folder.folds empty"
        )
    if rest and given:
        raise InputError(
            f"take {rest[0]['take_id']}: labelled but without a split, which others have; "
            "give all of them one, or none"
        )
    return [*notes, Note(_drawn(rest, segments, config))] if rest else notes


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


def _drawn(takes: TakeRows, segments: Sequence[Annotation], config: DataConfig) -> str:
    """Set whole groups aside, those of a fold or drawn ones, such that train covers every class."""
    own, dealt = config.folder, ""
    shares = {"test": (own.test, TEST_DRAW), "val": (own.val, VAL_DRAW)}
    if own.folds is not None:
        dealt = _dealt(takes, config)
        shares.pop("test")
    else:
        for take in takes:
            take["split"] = "train"
    for split, (share, draw) in shares.items():
        held = drawn_groups(takes, segments, share, [config.seed, draw]) if share else set()
        for take in takes:
            if take["split"] == "train" and take["group"] in held:
                take["split"] = split
    counts = Counter(take["split"] for take in takes)
    if not counts["test"] and not counts["val"]:
        return (
            "no take could be set aside for test: every group shows a class of its own; "
            "probes have nothing to be scored on"
        )
    each = ", ".join(f"{counts[split]} {split}" for split in SPLITS if counts[split])
    return f"{dealt or 'splits drawn by group'}, seed {config.seed}: {each}"


def folder_source(config: DataConfig, root: Path) -> Source:
    """Return every video of the folder as a take; unlabelled ones have the split `pretrain`."""
    own = config.folder
    folder = inside(root, own.path, "the data root")
    names = video_files(folder)
    if not names:
        raise InputError(f"{folder}: no video in it; set data.folder.path and the data root")
    annotations = Annotations()
    if own.labels is not None:
        labels = inside(folder, own.labels, "the videos' folder")
        annotations = read_annotations(labels, own.tier, own.frame_rate)
    by_video, ids = _by_video(annotations.rows, names), _take_ids(names)
    here = {name: folder / name for name in names}
    measured = measured_videos(here, config.workers, config.max_gap_s)
    builder = SourceBuilder()
    builder.missing["no readable video"] = [
        video.fault for video in measured.values() if video.fault
    ]
    classes = _classes(annotations, own, folder)
    for name, video in measured.items():
        if not video.fault:
            rows = by_video.get(name, [])
            builder.videos.append(video.row(ids[name], below(own.path, name)))
            builder.takes.append(_take(ids[name], rows))
            builder.segments += _segments(rows, ids[name], video, own, classes)
    builder.drop_empty()
    builder.note_late()
    source = builder.source(classes, config)
    takes, grouped = _with_splits(source.takes, ids, config, root)
    drawn = fill_splits(takes, source.segments, config)
    notes = [*annotations.notes, *grouped, *source.notes, *drawn]
    return replace(source, takes=takes, notes=notes, listed=frozenset(annotations.vocabulary))


def _with_splits(
    takes: TakeRows, ids: Mapping[str, str], config: DataConfig, root: Path
) -> tuple[TakeRows, list[Note]]:
    """Return the takes with the splits of bundles and the groups of a file, if there are any."""
    own = config.folder
    if own.splits is not None:
        bundles = inside(inside(root, own.path), own.splits)
        given = bundled_splits(bundles, config.fold, ids)
        takes = [{**take, "split": given.get(take["take_id"], take["split"])} for take in takes]
    return regrouped(takes, groups_file(config, root)) if config.groups else (takes, [])


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


def _by_video(
    rows: Sequence[AnnotationRow], names: Sequence[str]
) -> dict[str, list[AnnotationRow]]:
    """Return rows of every video; of several with one name, that of the label file's folder."""
    called = _called(names)
    by_video: dict[str, list[AnnotationRow]] = defaultdict(list)
    for row in rows:
        name = normalize("NFC", row.video.replace("\\", "/").removeprefix("./"))
        matches = called.get(name, [])
        if len(matches) > 1:
            beside = [n for n in matches if str(PurePosixPath(n).parent) == row.folder]
            matches = beside or matches
        if len(matches) != 1:
            what = f"stands for {', '.join(matches)}" if matches else "is not in the folder"
            hint = "" if matches else closest(name, names)
            raise InputError(f"{row.where}: video {row.video!r} {what}{hint}")
        by_video[matches[0]].append(row)
    return by_video


def _take_ids(names: Sequence[str]) -> dict[str, str]:
    """Return names without their suffix where these stay unique."""
    stems = [PurePosixPath(name).with_suffix("").as_posix() for name in names]
    count = Counter(stems)
    return {
        name: stem if count[stem] == 1 else name for name, stem in zip(names, stems, strict=True)
    }


def _classes(annotations: Annotations, own: FolderConfig, folder: Path) -> Classes:
    """Return the sorted labels; frame labels in the order of the mapping beside them, if any."""
    mapping = _mapping(annotations, own, folder)
    if mapping is None:
        names = tuple(
            sorted({row.label for row in annotations.rows if row.label is not None}, key=natural)
        )
        background = background_id(names, own.background, folder) if names else None
        return Classes(names, background)
    classes = read_mapping(mapping, own.background)
    for row in annotations.rows:
        if row.label is not None and row.label not in classes.names:
            hint = closest(row.label, classes.names)
            raise InputError(f"{row.where}: no class {row.label!r} in {mapping.name}{hint}")
    annotations.vocabulary |= dict.fromkeys(classes.names)
    return classes


def _mapping(annotations: Annotations, own: FolderConfig, folder: Path) -> Path | None:
    """Return the list of classes in or beside the folder of labels, where every frame has one."""
    if own.labels is None or not any(row.every for row in annotations.rows):
        return None
    labels = inside(folder, own.labels)
    places = [labels / MAPPING, labels.parent / MAPPING]
    return next((path for path in places if path.is_file()), None)


def _segments(
    rows: Sequence[AnnotationRow],
    take_id: str,
    video: Measured,
    own: FolderConfig,
    classes: Classes,
) -> list[Annotation]:
    """Return the labelled rows of a video in seconds."""
    segments, rate = [], own.frame_rate or video.fps
    count = max((row.end for row in rows if row.every), default=0)
    if count and abs(count / rate - video.duration_s) > max(2 / rate, FAR * video.duration_s):
        raise InputError(
            f"{rows[0].where}: {count:g} labels for {video.duration_s:.2f} s at {rate:g} per "
            "second; if they are at another rate, set data.folder.frame_rate (here "
            f"{count / video.duration_s:.3g})"
        )
    for row in rows:
        if row.label is None:
            continue
        start, end = (time / rate if row.frames else time for time in (row.start, row.end))
        check_span(start, end, row.where)
        if start >= video.duration_s and start < end:
            raise InputError(
                f"{row.where}: starts at {start:g} s, but the video ends at "
                f"{video.duration_s:.2f} s; are the times those of another video or frame rate?"
            )
        segments.append(Annotation(take_id, start, end, classes.names.index(row.label)))
    return segments


def _take(take_id: str, rows: Sequence[AnnotationRow]) -> dict[str, Any]:
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
        names = f"{', '.join(SPLITS)}{closest(split, SPLITS)}"
        raise InputError(f"{rows[0].where}: split {split!r}; expected {names}")
    group = fields.pop("group", "") or fields.get("participant", "")
    return take_row(take_id, "folder", split, group=group, **fields)
