"""The `egoexo4d` source: fine-grained keystep recognition of Ego-Exo4D, ego RGB video.

`takes.json`, `annotations/keystep_benchmark/keystep_segment_{train,val}.json` and
`label_mapping.csv` (278 classes) as the `egoexo` tool downloads them. The take stream of the paper
is its annotated segments in time order: tokens.gaps=drop, tokens.overlap=duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pjepa.core.tables import Classes, VideoRow
from pjepa.storage.roots import inside
from pjepa.takes.annotations.text_files import Note, csv_table, json_value
from pjepa.takes.config import DataConfig, EgoExo4DConfig
from pjepa.takes.source import Annotation, Source, below, lasting, late_notes, left_out, take_row
from pjepa.ui.console import InputError
from pjepa.video.files import measured_videos

BENCHMARK = "annotations/keystep_benchmark"
FETCH = "fetch it with `egoexo --parts annotations`"
Skipped = dict[str, list[str]]


@dataclass(frozen=True)
class Steps:
    """The benchmark's classes, and the label of every global step id."""

    classes: Classes
    label_of: Mapping[int, int]


@dataclass
class EgoTake:
    """A take that has keystep segments."""

    facts: Mapping[str, Any]  # its entry in takes.json
    split: str
    segments: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.facts["take_name"])


def egoexo4d_source(own: EgoExo4DConfig, config: DataConfig, root: Path) -> Source:
    """Return the annotated takes of train and val; the labels of test are not public."""
    base = inside(root, own.path, "the data root")
    steps = read_steps(base / BENCHMARK / "label_mapping.csv")
    takes, unknown = _annotated_takes(base)
    skipped = left_out("no entry in takes.json", unknown, config.missing)
    dropped = [take.name for take in takes if take.facts.get("is_dropped")]
    takes = [take for take in takes if not take.facts.get("is_dropped")]
    videos = _videos(takes, own, config, base, skipped)
    ends = {row.take_id: row.duration_s for row in videos}
    kept = [take for take in takes if take.name in ends]
    found = [segment for take in kept for segment in _segments(take, steps)]
    segments, empty = lasting(found)
    rows, notes = [_row(take) for take in kept], [*empty, *_notes(segments, ends)]
    if dropped:
        told = f"{len(dropped)} takes left out, is_dropped in takes.json"
        notes.append(Note(told, tuple(dropped)))
    return Source(videos, rows, segments, steps.classes, skipped=skipped, notes=notes)


def _videos(
    takes: list[EgoTake], own: EgoExo4DConfig, config: DataConfig, base: Path, skipped: Skipped
) -> list[VideoRow]:
    """Return the readable ego videos; add the others to `skipped`."""
    files = {take.name: ego_video(take, base, own.videos) for take in takes}
    absent = [name for name, file in files.items() if file is None or not (base / file).is_file()]
    skipped |= left_out("no ego video", absent, config.missing)
    here = {name: base / file for name, file in files.items() if file and name not in absent}
    measured = measured_videos(here, config.workers, config.max_gap_s)
    faults = [found.fault for found in measured.values() if found.fault]
    skipped |= left_out("no readable video", faults, config.missing)
    return [
        found.row(name, below(own.path, str(files[name])))
        for name, found in measured.items()
        if not found.fault
    ]


def read_steps(path: Path) -> Steps:
    """Return classes by label_id; a step name shared by two scenarios gets its scenario added."""
    columns = ("label_id", "step_unique_id", "step_name", "scenario_name")
    labels: dict[int, dict[str, str]] = {}
    for row in csv_table(path, columns, hint=FETCH).rows:
        label, step = (_whole(row.where, name, row.cells[name]) for name in columns[:2])
        if label in labels or step in {int(known["step_unique_id"]) for known in labels.values()}:
            raise InputError(f"{row.where}: label_id {label} or step {step} appears twice")
        if not row.cells["step_name"]:
            raise InputError(f"{row.where}: no step_name for label_id {label}")
        labels[label] = row.cells
    if sorted(labels) != list(range(len(labels))) or not labels:
        raise InputError(f"{path}: label_id must run from 0 to {len(labels) - 1} without a gap")
    ordered = [labels[label] for label in range(len(labels))]
    count = Counter(row["step_name"] for row in ordered)
    names = tuple(
        row["step_name"] if count[row["step_name"]] == 1
        else f"{row['step_name']} ({row['scenario_name']}, {row['step_unique_id']})"
        for row in ordered
    )  # fmt: skip
    ids = {int(row["step_unique_id"]): label for label, row in enumerate(ordered)}
    return Steps(Classes(names, None), ids)


def _whole(where: str, name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name}: expected a whole number, found {value!r}") from None


def _annotated_takes(base: Path) -> tuple[list[EgoTake], list[str]]:
    """Return takes with segments in the order of takes.json, and names that it does not know."""
    listed = json_value(base / "takes.json", "fetch it with `egoexo --parts metadata`")
    if not isinstance(listed, list):
        raise InputError(f"{base / 'takes.json'}: expected a list of takes")
    facts = {}
    for number, take in enumerate(listed):
        where = f"{base / 'takes.json'}, [{number}]"
        uid = _key(take, "take_uid", where)
        _key(take, "take_name", where)
        if uid in facts:
            raise InputError(f"{where}: take_uid {uid!r} appears twice")
        facts[uid] = take
    found: dict[str, EgoTake] = {}
    unknown: list[str] = []
    for split in ("train", "val"):
        path = base / BENCHMARK / f"keystep_segment_{split}.json"
        for number, segment in enumerate(_key(json_value(path, FETCH), "segments", path)):
            uid = _key(segment, "take_uid", f"{path}, segments[{number}]")
            if uid not in facts:
                unknown.append(str(segment.get("take_name", uid)))
                continue
            mine = found.setdefault(uid, EgoTake(facts[uid], split))
            if mine.split != split:
                raise InputError(f"{path}: take {mine.name} is in train and in val")
            mine.segments.append({**segment, "where": f"{path}, segments[{number}]"})
    takes = [found[uid] for uid in facts if uid in found]
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
    cameras = sorted(
        name
        for name, value in streams.items()
        if name.startswith("aria") and isinstance(value, dict)
    )
    named = str(take.segments[0].get("ego_segment_name") or "")
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


def _segments(take: EgoTake, steps: Steps) -> list[Annotation]:
    """Return the take's keysteps; label and step must be a pair of the mapping."""
    found = []
    for segment in take.segments:
        where = segment["where"]
        start, end = (_seconds(segment, name, where) for name in ("start_time", "end_time"))
        step, label = segment.get("step_unique_id"), segment.get("label_id")
        known = None
        if step is not None:
            known = steps.label_of.get(_whole(where, "step_unique_id", step))
        label = known if label is None else _whole(where, "label_id", label)
        if label is None or not 0 <= label < len(steps.classes.names):
            raise InputError(f"{where}: label_id {label}, step {step}: not in label_mapping.csv")
        if known is not None and known != label:
            raise InputError(f"{where}: label_id {label}, but step {step} has label {known}")
        if not 0 <= start <= end < float("inf"):
            raise InputError(f"{where}: from {start:g} to {end:g} s; expected 0 <= start <= end")
        found.append(Annotation(take.name, start, end, label))
    return found


def _seconds(segment: Mapping[str, Any], name: str, where: str) -> float:
    value = _key(segment, name, where)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name}: expected seconds, found {value!r}") from None


def _row(take: EgoTake) -> dict[str, Any]:
    """Return a row; takes of one capture show the same people and place, so they are a group."""
    facts = take.facts
    person = facts.get("participant_uid")
    return take_row(
        take.name,
        "egoexo4d",
        take.split,
        task=str(facts.get("task_name") or facts.get("parent_task_name") or ""),
        participant="" if person is None else str(person),
        view="ego",
        group=take.name.rpartition("_")[0] or take.name,
    )


def _notes(segments: list[Annotation], ends: Mapping[str, float]) -> list[Note]:
    repeated = len(segments) - len(set(segments))
    notes = late_notes(segments, ends)
    if repeated:
        notes.append(Note(f"{repeated} segments appear twice; tokens.overlap decides"))
    return notes
