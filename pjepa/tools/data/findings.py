"""Findings about a source: one for each kind of problem."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import combinations

import pandas as pd

from pjepa.core.time_grid import TIME_TOLERANCE
from pjepa.takes.annotations.notes import gathered
from pjepa.takes.config import DataConfig
from pjepa.takes.features.shipped import shipped_shape
from pjepa.takes.source import LATE_S, Annotation, Source
from pjepa.takes.sources.mstcn import known_set
from pjepa.tools.data.finding import Finding, Level
from pjepa.tools.data.needs import unmet_needs
from pjepa.tools.params import Params
from pjepa.ui.errors import InputError

ALIKE = 0.8  # similarity of two labels from which the rarer may be a typo
RARE = 0.2  # as often as this share of the other label, at most
SEEN = ("train", "pretrain")  # what models are fitted on


def findings(source: Source, params: Params) -> Iterator[Finding]:
    """Yield all findings about a source under these params."""
    level: Level = "warning" if params.data.missing == "skip" else "error"
    for why, names in source.skipped.items():
        yield Finding(level, f"{len(names)} takes with {why}", tuple(names))
    yield from (Finding("warning", note.text, note.names) for note in gathered(source.notes))
    yield from _unreadable(source)
    yield from _times(source)
    yield from _labels(source, params.data)
    yield from _leaks(source, params.data)
    yield from _unseen(source)
    yield from unmet_needs(source, params)
    yield from _unannotated(source, params)


def _unreadable(source: Source) -> Iterator[Finding]:
    """Yield the shipped features whose shape cannot be read, or that differ in width."""
    widths: dict[int, str] = {}
    faults = []
    for row in source.videos:
        if row.features is None:
            continue
        try:
            widths.setdefault(shipped_shape(row)[1], row.take_id)
        except InputError as error:
            faults.append(str(error))
    if faults:
        yield Finding("error", f"{len(faults)} takes whose features cannot be read", tuple(faults))
    if len(widths) > 1:
        found = tuple(f"{width} ({take})" for width, take in widths.items())
        yield Finding("error", "features of different widths", found)


def _times(source: Source) -> Iterator[Finding]:
    """Yield overlaps, repeated segments, and segments past the end of a video."""
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
        text = f"{total} segments overlap an earlier one, tokens.overlap decides"
        yield Finding("warning", text, tuple(+overlapping))
    if repeated:
        yield Finding("warning", f"{repeated} segments occur more than once")
    if total := late.total():
        text = f"{total} segments end over 1 s after their video (another rate?)"
        yield Finding("error", text, tuple(+late))


def _by_take(source: Source) -> dict[str, list[Annotation]]:
    found: dict[str, list[Annotation]] = defaultdict(list)
    for segment in source.segments:
        found[segment.take_id].append(segment)
    return found


def _labels(source: Source, config: DataConfig) -> Iterator[Finding]:
    """Yield the rare labels that look like a frequent one; classes that no segment shows.

    A data set's own list of classes has no typos to guess, nor has a controlled vocabulary.
    """
    count = Counter(source.classes.names[s.label] for s in source.segments if s.label >= 0)
    if config.source == "folder" and (typos := tuple(_typos(count, source.listed))):
        yield Finding("warning", f"{len(typos)} labels may be typos", typos)
    unused = tuple(name for name in source.classes.names if not count[name])
    if unused and count:
        yield Finding("warning", f"{len(unused)} classes without a segment", unused)


def _typos(count: Counter[str], listed: frozenset[str]) -> Iterator[str]:
    for one, two in combinations(sorted(count), 2):
        rare, often = sorted((one, two), key=lambda name: (count[name], name))
        if rare in listed or _numbered(rare, often):
            continue
        same = rare.lower().split() == often.lower().split()
        uncommon = count[rare] <= RARE * count[often]
        alike = SequenceMatcher(None, rare.lower(), often.lower()).ratio() >= ALIKE
        if same or (uncommon and alike):
            yield f"{rare!r} ({count[rare]} segments; {often!r} has {count[often]})"


def _numbered(one: str, two: str) -> bool:
    """Return whether two labels differ only in digits: `screw 1` and `screw 2` are no typo."""
    strip = str.maketrans("", "", "0123456789")
    return one.translate(strip) == two.translate(strip)


def _leaks(source: Source, config: DataConfig) -> Iterator[Finding]:
    """Yield the same recording, group or participant in what is fitted on and in what is scored.

    An official split may divide the cameras of a session, or groups that the user names: it cannot
    be fixed, but it should be known.
    """
    official = _official(config)
    takes = pd.DataFrame(source.takes)
    told: set[frozenset[str]] = set()
    for what in ("recording", "group", "participant"):
        known = official or what == "participant" or (config.groups is not None and what == "group")
        found: dict[str, list[str]] = defaultdict(list)
        for value, part in takes[takes[what] != ""].groupby(what):
            splits = {"train" if split in SEEN else split for split in part["split"]}
            members = frozenset(part["take_id"])
            if len(splits) > 1 and members not in told:
                told.add(members)
                found[" and in ".join(sorted(splits))].append(f"{value} ({len(members)} takes)")
        for where, names in found.items():
            text = f"{len(names)} {what}s in {where}"
            yield Finding("warning" if known else "error", text, tuple(names))


def _official(config: DataConfig) -> bool:
    """Return whether the splits are the data set's own, and not the user's."""
    if config.source == "mstcn":
        return known_set(config.mstcn) is not None
    return config.source not in ("demo", "folder")


def _unseen(source: Source) -> Iterator[Finding]:
    """Yield the labels that are scored but never shown in training."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    shown: dict[str, set[int]] = defaultdict(set)
    for segment in source.segments:
        shown[splits[segment.take_id]].add(segment.label)
    for split in ("val", "test"):
        new = sorted(shown[split] - shown["train"] - {-1}) if shown["train"] else []
        if new:
            names = tuple(source.classes.names[label] for label in new)
            yield Finding("warning", f"{len(new)} classes of {split} not in train", names)
    if not source.segments:
        yield Finding("warning", "no take has labels: probes will be skipped, features are written")


def _unannotated(source: Source, params: Params) -> Iterator[Finding]:
    """Yield takes without a segment, if the encoder is set to use annotated ones."""
    without = len({row.take_id for row in source.videos} - set(_by_take(source)))
    if without and params.pjepa.segments == "annotated":
        yield Finding(
            "error",
            f"{without} takes have no segments and pjepa.segments is annotated; use "
            "pjepa.attention=block_causal pjepa.segments=fixed (or pjepa.segments=found)",
        )
    if params.pooler.kind == "action" and not params.data.ships_features and not source.segments:
        yield Finding(
            "error", "no take has labels and pooler.kind is action; label some, or use mean"
        )
    if without and params.tokens.gaps == "drop":
        yield Finding("error", f"{without} takes have no segments: tokens.gaps=drop leaves nothing")
