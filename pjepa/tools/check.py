"""Checks of a source before anything is computed on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from pjepa.core.tables import SPLITS, VideoRow, pretraining_takes
from pjepa.core.time import TIME_TOLERANCE, token_count
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import open_take
from pjepa.probes.base.config import TrainedConfig
from pjepa.takes.annotations.text_files import Note, gathered
from pjepa.takes.config import DataConfig
from pjepa.takes.shipped import read_shipped, shipped_shape
from pjepa.takes.source import LATE_S, Annotation, Source, held_groups
from pjepa.takes.sources.mstcn import known_set
from pjepa.takes.sources.scan import check_scan
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import is_too_slow, picked_rows
from pjepa.tools.params import Params
from pjepa.tools.paths import source_list
from pjepa.ui.console import InputError, track
from pjepa.video.index import AGAIN

# One kind of finding about a source.

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One kind of finding; an error must be fixed, a warning should be known."""

    level: Level
    text: str
    names: tuple[str, ...] = ()  # the takes, files or labels it is about

    def line(self, most: int | None = None) -> str:
        """Return one line of the check; `most` limits the names in it."""
        return f"{self.level}: {Note(self.text, self.names).line(most)}"


# Findings about what later stages need of the takes: to pretrain, fit, choose and score on.


def unmet_needs(source: Source, params: Params) -> Iterator[Finding]:
    """Yield what would stop a later stage under these params."""
    held = held_groups(source, params.data.holdout, params.data.seed)
    takes = pd.DataFrame(source.takes)
    takes["holdout"] = (takes["split"] == "train") & takes["group"].isin(held)
    yield from _slow_features(source, params.tokens.fps)
    if not pretraining_takes(takes):
        yield Finding(
            "error",
            "no take to pretrain on: train and pretrain are empty, or all held out (data.holdout)",
        )
    if source.segments:
        yield from _unscored(source)
        yield from _unfitted(source, takes, params)


def _slow_features(source: Source, fps: float) -> Iterator[Finding]:
    """Yield the shipped features that come at a lower rate than the tokens."""
    slow = [row for row in source.videos if row.features and is_too_slow(row, fps)]
    if slow:
        most = min(row.fps for row in slow)
        yield Finding(
            "error",
            f"{len(slow)} takes with fewer features per second than tokens.fps {fps:g}; "
            f"set tokens.fps={most:g} or less",
            tuple(f"{row.take_id} ({row.fps:g})" for row in slow),
        )


def _unscored(source: Source) -> Iterator[Finding]:
    """Yield that the reported split shows no class but background; without labels, none at all."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    shown: dict[str, set[int]] = defaultdict(set)
    for segment in source.segments:
        if segment.label >= 0:
            shown[splits[segment.take_id]].add(segment.label)
    split = "test" if shown["test"] else "val"
    if not shown[split]:
        yield Finding("error", "no take of val or test has labels: probes have nothing to score")
    elif shown[split] == {source.classes.background}:
        text = f"the takes of {split} show background only: probes have nothing to score"
        yield Finding("error", text)


def _unfitted(source: Source, takes: pd.DataFrame, params: Params) -> Iterator[Finding]:
    """Yield that no labelled take is there to fit probes on, or to choose on."""
    labelled = {segment.take_id for segment in source.segments if segment.label >= 0}
    train = takes[(takes["split"] == "train") & takes["take_id"].isin(labelled)]
    remedies = _choosing(params)
    if train.empty:
        yield Finding("error", "no train take has labels: probes have nothing to fit")
    elif remedies and not train["holdout"].any():
        who, instead = ", ".join(remedies), " and ".join(dict.fromkeys(remedies.values()))
        yield Finding(
            "error",
            f"no labelled train take is held out to choose on ({who}); label more groups of "
            f"train, each class in two or more, or set {instead}",
        )


def _choosing(params: Params) -> dict[str, str]:
    """Return the probes that choose on held-out train takes, and what makes each do without."""
    found: dict[str, str] = {}
    if params.probe.common.select_on != "holdout":  # type: ignore[attr-defined]
        return found
    for name in params.cells.probes:
        config = getattr(params.probe, name)
        if isinstance(config, TrainedConfig):
            found[name] = "probe.common.select_on=last"
        elif name == "linear" and len(config.l2) > 1:
            found[name] = "probe.linear.l2 to one strength"
    return found


# Findings about a source: one for each kind of problem.

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
    """Return whether the Git-tracked list of files is not what is on disk: DVC would not notice."""
    try:
        check_scan(params.data, root, source_list(params.data.source))
    except InputError as error:
        return [Finding("warning", str(error))]
    return []


def check_source(source: Source, params: Params) -> Check:
    """Return the table and the findings of a source under these params."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    rows = [
        split_row(source, split, {t for t, s in splits.items() if s == split}, params.tokens.fps)
        for split in SPLITS
        if split in splits.values()
    ]
    rows.append(split_row(source, "all", set(splits), params.tokens.fps))
    return Check(rows, list(findings(source, params)))


def damaged_videos(source: Source, config: PatchesConfig) -> Iterator[Finding]:
    """Yield the videos that cannot be read, have damaged frames, or whose time stamps jump.

    Reads every one from end to end, as `patches` would.
    """
    videos = [row for row in source.videos if row.features is None]
    closed, damaged, jumping = [], [], []
    for row in track(videos, "check: decoding", total=len(videos), unit="take"):
        try:
            with open_take(row.path, config, row.max_gap_s) as video:
                jumping += [f"{row.take_id} ({jump})" for jump in video.info.jumps]
                damaged += [str(fault)] if (fault := video.fault()) else []
        except InputError as error:
            closed.append(str(error))
    level: Level = "warning" if config.on_error == "repeat" else "error"
    if closed:
        yield Finding("error", f"{len(closed)} videos cannot be read", tuple(closed))
    if damaged:
        text = f"{len(damaged)} videos with frames that cannot be decoded ({AGAIN})"
        yield Finding(level, text, tuple(fault.partition(";")[0] for fault in damaged))
    if jumping:
        text = f"{len(jumping)} jumps of the time stamps (recorded in several parts?)"
        yield Finding("warning", text, tuple(jumping))


def broken_features(source: Source, config: TokensConfig) -> Iterator[Finding]:
    """Yield the shipped features that cannot be stored as tokens; reads those that become some."""
    rows = [row for row in source.videos if row.features and not is_too_slow(row, config.fps)]
    broken = []
    for row in track(rows, "check: reading", total=len(rows), unit="take"):
        try:
            fault = _first_fault(row, config)
        except InputError as error:
            fault = str(error)
        broken += [fault] if fault else []
    if broken:
        text = f"{len(broken)} takes whose features cannot be stored as {config.dtype}"
        yield Finding("error", text, tuple(broken))


def _first_fault(row: VideoRow, config: TokensConfig) -> str | None:
    """Return the first feature of a take that is not finite as it is stored, if there is one."""
    picked = picked_rows(row, config.fps)
    features = np.asarray(read_shipped(row).features[picked.index])  # [T, D]
    with np.errstate(over="ignore"):  # what overflows is named
        finite = np.isfinite(features.astype(config.dtype))
    if finite.all():
        return None
    token, channel = np.argwhere(~finite)[0]
    at = f"{features[token, channel]:g} at {picked.times[token]:g} s, channel {channel}"
    return f"{row.take_id} ({at})"


def split_row(source: Source, name: str, takes: set[str], fps: float) -> list[str]:
    """Return one row of the table: `COLUMNS` of these takes."""
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
