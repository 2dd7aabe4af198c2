"""The `egoexo4d` source: fine-grained keystep recognition of Ego-Exo4D, ego RGB video.

`takes.json`, `annotations/keystep_benchmark/keystep_segment_{train,val}.json` and
`label_mapping.csv` (278 classes) as the `egoexo` tool downloads them. The take stream of the paper
is its annotated segments in time order: tokens.gaps=drop, tokens.overlap=duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.core.tables import Classes
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import (
    as_number,
    as_whole,
    check_span,
    csv_table,
    in_order,
    json_value,
)
from pjepa.takes.config import DataConfig
from pjepa.takes.source import (
    Annotation,
    Source,
    SourceBuilder,
    below,
    refuse_missing,
    take_row,
)
from pjepa.ui.console import InputError
from pjepa.video.files import measured_videos

BENCHMARK = "annotations/keystep_benchmark"
FETCH = "fetch it with `egoexo --parts annotations`"


@dataclass
class EgoTake:
    """A take that has keystep segments, each with its place in its file."""

    facts: Mapping[str, Any]  # its entry in takes.json
    split: str
    segments: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.facts["take_name"])


def egoexo4d_source(config: DataConfig, root: Path) -> Source:
    """Return the annotated takes of train and val; the labels of test are not public."""
    own, builder = config.egoexo4d, SourceBuilder()
    base = inside(root, own.path, "the data root")
    classes, label_of = read_steps(base / BENCHMARK / "label_mapping.csv")
    takes, unknown = _annotated_takes(base)
    builder.missing["no entry in takes.json"] = unknown
    files = {}
    for take in takes:
        if take.facts.get("is_dropped"):
            builder.seen["takes left out, is_dropped in takes.json"].append(take.name)
        elif (file := ego_video(take, base, own.videos)) and (base / file).is_file():
            files[take.name] = file
        else:
            builder.missing["no ego video"].append(take.name)
    refuse_missing(builder.missing, config)  # before videos are read
    here = {name: base / file for name, file in files.items()}
    measured = measured_videos(here, config.workers, config.max_gap_s)
    for take in takes:
        if (video := measured.get(take.name)) is None:
            continue
        if video.fault:
            builder.missing["no readable video"].append(video.fault)
            continue
        builder.videos.append(video.row(take.name, below(own.path, files[take.name])))
        builder.takes.append(_row(take))
        builder.segments += _segments(take, classes, label_of)
    builder.drop_empty()
    builder.note_late()
    twice = builder.seen["segments appear twice; tokens.overlap decides"]
    for segment, count in Counter(builder.segments).items():
        twice += [segment.take_id] * (count - 1)
    return builder.source(classes, config)


def read_steps(path: Path) -> tuple[Classes, dict[int, int]]:
    """Return classes by label_id, and the label of every global step id.

    A step name shared by two scenarios gets its scenario added.
    """
    columns = ("label_id", "step_unique_id", "step_name", "scenario_name")
    rows: dict[int, Mapping[str, str]] = {}
    ids: dict[int, int] = {}
    for row in csv_table(path, columns, hint=FETCH):
        label, step = (as_whole(row.cells[name], f"{row.where}: {name}") for name in columns[:2])
        if label in rows or step in ids:
            raise InputError(f"{row.where}: label_id {label} or step {step} appears twice")
        if not row.cells["step_name"]:
            raise InputError(f"{row.where}: no step_name for label_id {label}")
        rows[label], ids[step] = row.cells, label
    ordered = in_order(rows, path, "label_id")
    count = Counter(row["step_name"] for row in ordered)
    names = tuple(
        row["step_name"] if count[row["step_name"]] == 1
        else f"{row['step_name']} ({row['scenario_name']}, {row['step_unique_id']})"
        for row in ordered
    )  # fmt: skip
    return Classes(names, None), ids


def _annotated_takes(base: Path) -> tuple[list[EgoTake], list[str]]:
    """Return takes with segments in the order of takes.json, and names that it does not know."""
    listed = json_value(base / "takes.json", "fetch it with `egoexo --parts metadata`")
    if not isinstance(listed, list):
        raise InputError(f"{base / 'takes.json'}: expected a list of takes")
    facts = {}
    for number, take in enumerate(listed):
        where = f"{base / 'takes.json'}, [{number}]"
        uid = str(_key(take, "take_uid", where))
        _key(take, "take_name", where)
        if uid in facts:
            raise InputError(f"{where}: take_uid {uid!r} appears twice")
        facts[uid] = take
    annotated: dict[str, EgoTake] = {}
    unknown: list[str] = []
    for split in ("train", "val"):
        path = base / BENCHMARK / f"keystep_segment_{split}.json"
        segments = _key(json_value(path, FETCH), "segments", path)
        if not isinstance(segments, list):
            raise InputError(f"{path}: segments: expected a list, found {segments!r:.60}")
        for number, segment in enumerate(segments):
            uid = str(_key(segment, "take_uid", f"{path}, segments[{number}]"))
            if uid not in facts:
                unknown.append(str(segment.get("take_name", uid)))
                continue
            mine = annotated.setdefault(uid, EgoTake(facts[uid], split))
            if mine.split != split:
                raise InputError(f"{path}: take {mine.name} is in train and in val")
            mine.segments.append((f"{path}, segments[{number}]", segment))
    takes = [annotated[uid] for uid in facts if uid in annotated]
    if twice := [name for name, count in Counter(t.name for t in takes).items() if count > 1]:
        raise InputError(f"{base / 'takes.json'}: take_name {twice[0]!r} appears twice")
    return takes, sorted(set(unknown))


def _key(value: Any, name: str, where: object) -> Any:
    if not isinstance(value, dict) or value.get(name) is None:
        keys = ", ".join(value) if isinstance(value, dict) else type(value).__name__
        raise InputError(f"{where}: expected the key {name!r}, found {keys}")
    return value[name]


def ego_video(take: EgoTake, base: Path, videos: str) -> str | None:
    """Return the ego RGB file relative to `base`: the `rgb` stream of the Aria glasses, or None.

    `auto` prefers the downscaled file where it exists.
    """
    streams = take.facts.get("frame_aligned_videos") or {}
    if not isinstance(streams, dict):
        raise InputError(f"takes.json: {take.name}: frame_aligned_videos: expected cameras by name")
    cameras = sorted(n for n, v in streams.items() if n.startswith("aria") and isinstance(v, dict))
    named = str(take.segments[0][1].get("ego_segment_name") or "")
    cameras.sort(key=lambda name: f"_{name}_" not in named)  # the one the segments show first
    for camera in cameras:
        stream = streams[camera].get("rgb")
        relative = stream.get("relative_path") if isinstance(stream, dict) else None
        if not relative:
            continue
        full = f"{take.facts.get('root_dir') or f'takes/{take.name}'}/{relative}"
        folder, _, file = full.rpartition("/")
        small = f"{folder}/downscaled/448/{file}"
        here = inside(base, small, "the data set's folder").is_file()
        return small if videos == "448" or (videos == "auto" and here) else full
    return None


def _segments(take: EgoTake, classes: Classes, label_of: Mapping[int, int]) -> Iterator[Annotation]:
    """Yield the take's keysteps; label and step must be a pair of the mapping."""
    for where, segment in take.segments:
        start, end = (
            as_number(_key(segment, name, where), f"{where}: {name}")
            for name in ("start_time", "end_time")
        )
        check_span(start, end, where)
        step, label, known = segment.get("step_unique_id"), segment.get("label_id"), None
        if step is not None:
            known = label_of.get(as_whole(step, f"{where}: step_unique_id"))
        label = known if label is None else as_whole(label, f"{where}: label_id")
        if label is None or not 0 <= label < len(classes.names):
            raise InputError(f"{where}: label_id {label}, step {step}: not in label_mapping.csv")
        if known is not None and known != label:
            raise InputError(f"{where}: label_id {label}, but step {step} has label {known}")
        yield Annotation(take.name, start, end, label)


def _row(take: EgoTake) -> dict[str, Any]:
    """Return a row; takes of one capture show the same people and place, so they are a group."""
    facts, person = take.facts, take.facts.get("participant_uid")
    return take_row(
        take.name, "egoexo4d", take.split,
        task=str(facts.get("task_name") or facts.get("parent_task_name") or ""),
        participant="" if person is None else str(person), view="ego",
        group=take.name.rpartition("_")[0] or take.name,
    )  # fmt: skip
