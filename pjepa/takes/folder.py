"""The `folder` source: own videos, labelled by one file of annotations or not at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize

import pandas as pd

from pjepa.config.data import DataConfig, FolderConfig
from pjepa.errors import InputError
from pjepa.roots import inside
from pjepa.takes.annotation_files import read_annotations
from pjepa.takes.annotations import Annotations, Marked
from pjepa.takes.framewise import background_id, closest
from pjepa.takes.groups import groups_file, regrouped
from pjepa.takes.holdout import drawn_groups
from pjepa.takes.manifest import SPLITS, Classes, VideoRow
from pjepa.takes.source import Annotation, Source, late_notes, left_out, take_row
from pjepa.takes.videos import Measured, measured_videos, video_files

TEST_DRAW, VAL_DRAW = 0x7E57, 0x0A1D  # seeds of the two draws


def folder_source(own: FolderConfig, config: DataConfig, root: Path) -> Source:
    """Every video of the folder is a take; those without a label have the split `pretrain`."""
    folder = root if own.path == "." else inside(root, own.path, "the data root")
    names = video_files(folder)
    if not names:
        raise InputError(f"{folder}: no video in it; set data.folder.path and the data root")
    found = Annotations()
    if own.labels is not None:
        found = read_annotations(inside(folder, own.labels, "the videos' folder"), own.tier)
    by_video = _by_video(found.rows, names)
    measured = measured_videos({name: folder / name for name in names}, config.workers)
    readable = [name for name in names if not measured[name].fault]
    faults = [measured[name].fault for name in names if measured[name].fault]
    skipped = left_out("no readable video", faults, config.missing)
    ids = _take_ids(names)
    classes = _classes(found.rows, own, folder)
    segments = [
        _segment(row, ids[name], measured[name], classes)
        for name in readable
        for row in by_video.get(name, [])
        if row.label is not None
    ]
    takes = [_take(ids[name], by_video.get(name, [])) for name in readable]
    if config.groups is not None:
        takes, told = regrouped(takes, groups_file(config, root))
        found.notes += told
    ends = {ids[name]: measured[name].duration_s for name in readable}
    notes = [*found.notes, *late_notes(segments, ends), *_split(takes, segments, own, config.seed)]
    prefix = "" if own.path == "." else f"{own.path}/"
    videos = [
        VideoRow(
            ids[name], f"{prefix}{name}", measured[name].fps, measured[name].duration_s, root="data"
        )
        for name in readable
    ]
    return Source(videos, takes, segments, classes, skipped=skipped, notes=notes)


def _by_video(rows: Sequence[Marked], names: Sequence[str]) -> dict[str, list[Marked]]:
    """Rows of every video; a row's video may be a path in the folder, or a name alone."""
    known: dict[str, list[str]] = defaultdict(list)
    for name in names:
        path = PurePosixPath(name)
        for key in {name, path.name, path.with_suffix("").as_posix(), path.stem}:
            known[normalize("NFC", key)].append(name)
    found: dict[str, list[Marked]] = defaultdict(list)
    paths = {normalize("NFC", name): name for name in names}  # macOS writes names decomposed
    for row in rows:
        wanted = normalize("NFC", row.video.replace("\\", "/").removeprefix("./"))
        matches = [paths[wanted]] if wanted in paths else known.get(wanted, [])
        if len(matches) != 1:
            what = f"stands for {', '.join(matches)}" if matches else "is not in the folder"
            hint = "" if matches else closest(wanted, names)
            raise InputError(f"{row.where}: video {row.video!r} {what}{hint}")
        found[matches[0]].append(row)
    return found


def _take_ids(names: Sequence[str]) -> dict[str, str]:
    """Names without their suffix where that is enough to tell videos apart."""
    stems = [PurePosixPath(name).with_suffix("").as_posix() for name in names]
    count = Counter(stems)
    return {
        name: stem if count[stem] == 1 else name for name, stem in zip(names, stems, strict=True)
    }


def _classes(rows: Sequence[Marked], own: FolderConfig, folder: Path) -> Classes:
    names = tuple(sorted({row.label for row in rows if row.label is not None}))
    if own.background is not None and not names:
        return Classes(names, None)
    return Classes(names, background_id(names, own.background, folder))


def _segment(row: Marked, take_id: str, video: Measured, classes: Classes) -> Annotation:
    start, end = row.start, row.end
    if row.frames:
        start, end = start / video.fps, end / video.fps
    if not 0 <= start < end < float("inf"):
        raise InputError(
            f"{row.where}: a segment from {start:g} to {end:g} s; expected 0 <= start < end"
        )
    if start >= video.duration_s:
        raise InputError(
            f"{row.where}: starts at {start:g} s, but the video ends at {video.duration_s:.2f} s; "
            "are the times those of another video or frame rate?"
        )
    return Annotation(take_id, start, end, classes.names.index(str(row.label)))


def _take(take_id: str, rows: Sequence[Marked]) -> dict[str, Any]:
    """A take with what its rows say; two rows that contradict each other are refused."""
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


def _split(
    takes: list[dict[str, Any]], segments: list[Annotation], own: FolderConfig, seed: int
) -> list[str]:
    """Fills in the splits: as given, else drawn by group among the labelled takes."""
    labelled = {segment.take_id for segment in segments}
    open_ = [take for take in takes if not take["split"]]
    for take in open_:
        if take["take_id"] not in labelled:
            take["split"] = "pretrain"
    rest = [take for take in open_ if not take["split"]]
    notes = []
    if len(open_) > len(rest):
        notes.append(f"{len(open_) - len(rest)} takes without labels: split pretrain")
    if rest and any(take["split"] in ("train", "val", "test") for take in takes):
        raise InputError(
            f"take {rest[0]['take_id']}: labelled but without a split, which others have; "
            "give all of them one, or none"
        )
    if rest:
        notes.append(_draw(rest, segments, own, seed))
    return notes


def _draw(
    takes: list[dict[str, Any]], segments: list[Annotation], own: FolderConfig, seed: int
) -> str:
    """Seeded: whole groups for test, then for val, such that train still shows every class."""
    table = pd.DataFrame([vars(segment) for segment in segments])
    for take in takes:
        take["split"] = "train"
    for split, share, draw in (("test", own.test, TEST_DRAW), ("val", own.val, VAL_DRAW)):
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
    return f"splits drawn by group, seed {seed}: {told}"
