"""What is wrong or odd in a source, before anything is computed on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from pjepa.config.params import Params
from pjepa.errors import InputError
from pjepa.progress import track
from pjepa.takes.manifest import SPLITS
from pjepa.takes.scan import check_scan
from pjepa.takes.shipped import shipped_shape
from pjepa.takes.source import LATE_S, Annotation, Source
from pjepa.video.index import damage, frame_index
from pjepa.video.sampling import TIME_TOLERANCE, token_count

ALIKE = 0.8  # similarity of two labels from which the rarer may be a typo
RARE = 0.2  # as often as this share of the other label, at most
SEEN = ("train", "pretrain")  # what models are fitted on


@dataclass(frozen=True)
class Finding:
    """One line of the check; an error has to be put right, a warning has to be known."""

    level: Literal["error", "warning"]
    text: str


@dataclass(frozen=True)
class Check:
    """Numbers of the source per split, and what was found."""

    rows: list[list[str]]
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return not any(finding.level == "error" for finding in self.findings)


COLUMNS = [
    "split", "takes", "hours", "longest min", "tokens", "segments", "classes", "background %",
    "unlabelled",
]  # fmt: skip


def unlisted(params: Params, root: Path) -> list[Finding]:
    """Whether the Git-tracked list of files is not what is on disk: DVC would not notice."""
    try:
        check_scan(params.data, root)
    except InputError as error:
        return [Finding("warning", str(error))]
    return []


def check_source(source: Source, params: Params) -> Check:
    """The table and the findings of a source under these params."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    rows = [
        split_row(source, split, {t for t, s in splits.items() if s == split}, params.tokens.fps)
        for split in SPLITS
        if split in splits.values()
    ]
    rows.append(split_row(source, "all", set(splits), params.tokens.fps))
    return Check(rows, list(_findings(source, params)))


def damaged_videos(source: Source) -> Iterator[Finding]:
    """Videos with frames that cannot be decoded; reads every one from end to end."""
    videos = [row for row in source.videos if row.features is None]
    for row in track(videos, "check: decoding", total=len(videos), unit="take"):
        try:
            fault = damage(row.path, frame_index(row.path))
        except InputError as error:
            fault = error
        if fault is not None:
            yield Finding("error", f"take {row.take_id}: {fault}")


def split_row(source: Source, name: str, takes: set[str], fps: float) -> list[str]:
    """One row of the table: `COLUMNS` of these takes."""
    videos = [row for row in source.videos if row.take_id in takes]
    segments = [segment for segment in source.segments if segment.take_id in takes]
    seconds = [segment.end_s - segment.start_s for segment in segments]
    idle = sum(
        length
        for segment, length in zip(segments, seconds, strict=True)
        if segment.label == source.classes.background
    )
    labelled = {segment.take_id for segment in segments}
    return [
        name,
        str(len(videos)),
        f"{sum(row.duration_s for row in videos) / 3600:.2f}",
        f"{max((row.duration_s for row in videos), default=0) / 60:.1f}",
        str(sum(token_count(row.duration_s, fps) for row in videos)),
        str(len(segments)),
        str(len({segment.label for segment in segments if segment.label >= 0})),
        f"{100 * idle / sum(seconds):.1f}" if sum(seconds) else "-",
        str(len(takes - labelled)),
    ]


def _findings(source: Source, params: Params) -> Iterator[Finding]:
    for why, names in source.skipped.items():
        yield Finding("error", f"{len(names)} takes with {why}: {', '.join(names)}")
    yield from (Finding("warning", note) for note in source.notes)
    yield from _unreadable(source)
    yield from _times(source)
    yield from _typos(source)
    yield from _leaks(source, given=params.data.groups is not None)
    yield from _unscored(source)
    yield from _unannotated(source, params)


def _unreadable(source: Source) -> Iterator[Finding]:
    """Shipped features whose shape cannot be read, or that differ in width."""
    widths: dict[int, str] = {}
    for row in source.videos:
        if row.features is None:
            continue
        try:
            widths.setdefault(shipped_shape(row)[1], row.take_id)
        except InputError as error:
            yield Finding("error", str(error))
    if len(widths) > 1:
        found = ", ".join(f"{width} ({take})" for width, take in widths.items())
        yield Finding("error", f"features of different widths: {found}")


def _times(source: Source) -> Iterator[Finding]:
    """Overlaps, repeated segments, and segments past the end of a video."""
    overlapping: Counter[str] = Counter()
    late: Counter[str] = Counter()
    ends = {row.take_id: row.duration_s for row in source.videos if row.features is None}
    for take_id, segments in _by_take(source).items():
        segments.sort(key=lambda s: (s.start_s, s.end_s))
        reached = 0.0
        for segment in segments:
            overlapping[take_id] += segment.start_s < reached - TIME_TOLERANCE
            reached = max(reached, segment.end_s)
            late[take_id] += segment.end_s > ends.get(take_id, float("inf")) + LATE_S
    repeated = len(source.segments) - len(set(source.segments))
    if total := overlapping.total():
        names = ", ".join(take for take, count in overlapping.items() if count)
        yield Finding(
            "warning", f"{total} segments overlap an earlier one ({names}); tokens.overlap decides"
        )
    if repeated:
        yield Finding("warning", f"{repeated} segments stand there more than once")
    if total := late.total():
        names = ", ".join(take for take, count in late.items() if count)
        yield Finding(
            "error", f"{total} segments end over 1 s after their video ({names}); another rate?"
        )


def _by_take(source: Source) -> dict[str, list[Annotation]]:
    found: dict[str, list[Annotation]] = defaultdict(list)
    for segment in source.segments:
        found[segment.take_id].append(segment)
    return found


def _typos(source: Source) -> Iterator[Finding]:
    """Rare labels that look like a frequent one; classes that no segment shows."""
    count = Counter(source.classes.names[s.label] for s in source.segments if s.label >= 0)
    for one, two in combinations(sorted(count), 2):
        rare, often = sorted((one, two), key=lambda name: (count[name], name))
        alike = SequenceMatcher(None, rare.lower(), often.lower()).ratio() >= ALIKE
        if alike and count[rare] <= RARE * count[often] and not _numbered(rare, often):
            text = f"label {rare!r} ({count[rare]} segments): did you mean {often!r}"
            yield Finding("warning", f"{text} ({count[often]})?")
    unused = [name for name in source.classes.names if not count[name]]
    if unused and count:
        yield Finding("warning", f"{len(unused)} classes without a segment: {', '.join(unused)}")


def _numbered(one: str, two: str) -> bool:
    """Whether two labels differ in their digits alone: `screw 1` and `screw 2` are no typo."""
    strip = str.maketrans("", "", "0123456789")
    return one.translate(strip) == two.translate(strip)


def _leaks(source: Source, given: bool) -> Iterator[Finding]:
    """The same recording, group or participant in what is fitted on and in what is scored.

    Groups `given` to a data set may well cut across its official splits: that has to be known.
    """
    takes = pd.DataFrame(source.takes)
    told: set[frozenset[str]] = set()
    for what in ("recording", "group", "participant"):
        for value, part in takes[takes[what] != ""].groupby(what):
            splits = {"train" if split in SEEN else split for split in part["split"]}
            members = frozenset(part["take_id"])
            if len(splits) > 1 and members not in told:
                told.add(members)
                known = what == "participant" or (given and what == "group")
                level: Any = "warning" if known else "error"
                where = " and ".join(sorted(splits))
                yield Finding(level, f"{what} {value!r} is in {where}: {len(members)} takes")


def _unscored(source: Source) -> Iterator[Finding]:
    """Labels that are scored but never shown in training."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    shown: dict[str, set[int]] = defaultdict(set)
    for segment in source.segments:
        shown[splits[segment.take_id]].add(segment.label)
    for split in ("val", "test"):
        new = sorted(shown[split] - shown["train"] - {-1}) if shown["train"] else []
        if new:
            names = ", ".join(source.classes.names[label] for label in new)
            yield Finding("warning", f"{len(new)} classes of {split} not in train: {names}")
    if source.segments and not (shown["val"] or shown["test"]):
        yield Finding("error", "no take of val or test has labels: probes have nothing to score")
    if not source.segments:
        yield Finding("warning", "no take has labels: probes will be skipped")


def _unannotated(source: Source, params: Params) -> Iterator[Finding]:
    """Takes without a segment, where the encoder is told to use annotated ones."""
    without = len({row.take_id for row in source.videos} - set(_by_take(source)))
    if without and params.pjepa.segments == "annotated":
        yield Finding(
            "error",
            f"{without} takes have no segments and pjepa.segments is annotated; use "
            "pjepa.attention=block_causal pjepa.segments=fixed (or pjepa.segments=found)",
        )
    if without and params.tokens.gaps == "drop":
        yield Finding("error", f"{without} takes have no segments: tokens.gaps=drop leaves nothing")
