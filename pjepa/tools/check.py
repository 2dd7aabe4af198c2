"""`pjepa data check`: what is in a source, and what is wrong with it."""

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
from pjepa.takes.source import LATE_S, Source, held_groups
from pjepa.takes.sources.mstcn import known_set
from pjepa.takes.sources.scan import check_scan
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import is_too_slow, picked_rows
from pjepa.tools.params import Params
from pjepa.tools.paths import source_list
from pjepa.ui.console import InputError, track
from pjepa.video.index import AGAIN

COLUMNS = [
    "split", "takes", "hours", "longest min", "tokens", "segments", "classes", "background %",
    "unlabelled",
]  # fmt: skip
SPANS = {"take_id": str, "start_s": float, "end_s": float, "label": int}
ALIKE = 0.8  # similarity of two labels from which the rarer may be a typo
RARE = 0.2  # as often as this share of the other label, at most
SEEN = ("train", "pretrain")  # what models are fitted on


@dataclass(frozen=True)
class Finding(Note):
    """One kind of finding; an error must be fixed, a warning should be known."""

    level: Literal["error", "warning"] = "error"

    def line(self, most: int | None = None) -> str:
        """Return one line of the check; `most` limits the names in it."""
        return f"{self.level}: {super().line(most)}"


def warning(text: str, names: tuple[str, ...] = ()) -> Finding:
    """Return what should be known."""
    return Finding(text, names, "warning")


@dataclass(frozen=True)
class Checked:
    """A source, the params under which it is looked at, and its tables."""

    source: Source
    params: Params
    takes: pd.DataFrame  # as written, with the length of each in seconds
    segments: pd.DataFrame  # with the split of their take

    @classmethod
    def of(cls, source: Source, params: Params) -> Checked:
        """Return the tables of a source, with the hold-out that these params draw."""
        takes = pd.DataFrame(source.takes)
        held = held_groups(source, params.data.holdout, params.data.seed)
        takes["holdout"] = (takes["split"] == "train") & takes["group"].isin(held)
        lengths = {row.take_id: row.duration_s for row in source.videos}
        takes["seconds"] = takes["take_id"].map(lengths)
        spans = [(s.take_id, s.start_s, s.end_s, s.label) for s in source.segments]
        segments = pd.DataFrame(spans, columns=list(SPANS)).astype(SPANS)
        splits = dict(zip(takes["take_id"], takes["split"], strict=True))
        segments["split"] = segments["take_id"].map(splits)
        return cls(source, params, takes, segments)

    def labelled(self) -> pd.DataFrame:
        """Return the segments whose label is known."""
        return self.segments[self.segments["label"] >= 0]

    def labels(self) -> dict[str, set[int]]:
        """Return the known labels of every split that has some."""
        by_split = self.labelled().groupby("split")["label"]
        return {str(split): set(labels) for split, labels in by_split}


def check_source(source: Source, params: Params) -> tuple[list[list[str]], list[Finding]]:
    """Return the table (`COLUMNS` of every split and of all) and the findings of a source."""
    checked = Checked.of(source, params)
    takes, segments = checked.takes, checked.segments
    rows = []
    for name in (*SPLITS, "all"):
        chosen = takes if name == "all" else takes[takes["split"] == name]
        if len(chosen):
            within = segments[segments["take_id"].isin(chosen["take_id"])]
            background, fps = source.classes.background, params.tokens.fps
            rows.append([name, *_row(chosen, within, background, fps)])
    return rows, list(_findings(checked))


def _row(
    takes: pd.DataFrame, segments: pd.DataFrame, background: int | None, fps: float
) -> list[str]:
    seconds = segments["end_s"] - segments["start_s"]
    idle = seconds[segments["label"] == background].sum()
    return [
        str(len(takes)),
        f"{takes['seconds'].sum() / 3600:.2f}",
        f"{takes['seconds'].max() / 60:.1f}",
        str(sum(token_count(length, fps) for length in takes["seconds"])),
        str(len(segments)),
        str(segments.loc[segments["label"] >= 0, "label"].nunique()),
        f"{100 * idle / seconds.sum():.1f}" if seconds.sum() else "-",
        str((~takes["take_id"].isin(segments["take_id"])).sum()),
    ]


def _findings(checked: Checked) -> Iterator[Finding]:
    """Yield all findings, one for each kind of problem."""
    source, skip = checked.source, checked.params.data.missing == "skip"
    for why, names in source.skipped.items():
        text = f"{len(names)} takes with {why}"
        yield Finding(text, tuple(names), "warning" if skip else "error")
    yield from (warning(note.text, note.names) for note in gathered(source.notes))
    yield from _unreadable(source)
    yield from _times(checked)
    yield from _labels(source, checked.params.data)
    yield from _leaks(checked.takes, checked.params.data)
    yield from _unseen(checked)
    yield from _unmet(checked)
    yield from _unannotated(checked)


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
        yield Finding(f"{len(faults)} takes whose features cannot be read", tuple(faults))
    if len(widths) > 1:
        examples = tuple(f"{width} ({take})" for width, take in widths.items())
        yield Finding("features of different widths", examples)


def _times(checked: Checked) -> Iterator[Finding]:
    """Yield overlaps, repeated segments, and segments past the end of a video."""
    spans = checked.segments.sort_values(["start_s", "end_s"], kind="stable")
    reached = spans.groupby("take_id")["end_s"].cummax()
    before = reached.groupby(spans["take_id"]).shift(fill_value=0.0)
    overlapping = spans[spans["start_s"] < before - TIME_TOLERANCE].sort_index()
    if len(overlapping):
        text = f"{len(overlapping)} segments overlap an earlier one, tokens.overlap decides"
        yield warning(text, tuple(overlapping["take_id"].unique()))
    if repeated := spans.duplicated().sum():
        yield warning(f"{repeated} segments occur more than once")
    ends = {row.take_id: row.duration_s for row in checked.source.videos if row.features is None}
    after = spans["end_s"] - spans["take_id"].map(ends).astype(float)
    late = spans[after > LATE_S].sort_index()
    if len(late):
        text = f"{len(late)} segments end over 1 s after their video (another rate?)"
        yield Finding(text, tuple(late["take_id"].unique()))


def _labels(source: Source, config: DataConfig) -> Iterator[Finding]:
    """Yield the rare labels that look like a frequent one; classes that no segment shows.

    A data set's own list of classes has no typos to guess, nor has a controlled vocabulary.
    """
    count = Counter(source.classes.names[s.label] for s in source.segments if s.label >= 0)
    if config.source == "folder" and (typos := tuple(_typos(count, source.listed))):
        yield warning(f"{len(typos)} labels may be typos", typos)
    unused = tuple(name for name in source.classes.names if not count[name])
    if unused and count:
        yield warning(f"{len(unused)} classes without a segment", unused)


def _typos(count: Counter[str], listed: frozenset[str]) -> Iterator[str]:
    digits = str.maketrans("", "", "0123456789")
    for one, two in combinations(sorted(count), 2):
        rare, often = sorted((one, two), key=lambda name: (count[name], name))
        numbered = one.translate(digits) == two.translate(digits)  # `screw 1` and `screw 2`
        if rare in listed or numbered:
            continue
        same = rare.lower().split() == often.lower().split()
        uncommon = count[rare] <= RARE * count[often]
        alike = SequenceMatcher(None, rare.lower(), often.lower()).ratio() >= ALIKE
        if same or (uncommon and alike):
            yield f"{rare!r} ({count[rare]} segments; {often!r} has {count[often]})"


def _leaks(takes: pd.DataFrame, config: DataConfig) -> Iterator[Finding]:
    """Yield the same recording, group or participant in what is fitted on and in what is scored.

    An official split may divide the cameras of a session, or groups that the user names: it cannot
    be fixed, but it should be known.
    """
    official = config.source not in ("demo", "folder")
    if config.source == "mstcn":
        official = known_set(config.mstcn) is not None
    reported: set[frozenset[str]] = set()
    for what in ("recording", "group", "participant"):
        chosen = official or what == "participant" or (what == "group" and bool(config.groups))
        divided: dict[str, list[str]] = defaultdict(list)
        for value, rows in takes[takes[what] != ""].groupby(what):
            splits = {"train" if split in SEEN else split for split in rows["split"]}
            members = frozenset(rows["take_id"])
            if len(splits) > 1 and members not in reported:
                reported.add(members)
                divided[" and in ".join(sorted(splits))].append(f"{value} ({len(members)} takes)")
        for where, names in divided.items():
            text = f"{len(names)} {what}s in {where}"
            yield Finding(text, tuple(names), "warning" if chosen else "error")


def _unseen(checked: Checked) -> Iterator[Finding]:
    """Yield the labels that are scored but never shown in training."""
    labels = checked.labels()
    for split in ("val", "test"):
        new = labels.get(split, set()) - labels["train"] if "train" in labels else set()
        if new:
            names = tuple(checked.source.classes.names[label] for label in sorted(new))
            yield warning(f"{len(new)} classes of {split} not in train", names)
    if checked.segments.empty:
        yield warning("no take has labels: probes will be skipped, features are written")


def _unmet(checked: Checked) -> Iterator[Finding]:
    """Yield what would stop a later stage under these params."""
    fps = checked.params.tokens.fps
    slow = [row for row in checked.source.videos if row.features and is_too_slow(row, fps)]
    if slow:
        yield Finding(
            f"{len(slow)} takes with fewer features per second than tokens.fps {fps:g}; "
            f"set tokens.fps={min(row.fps for row in slow):g} or less",
            tuple(f"{row.take_id} ({row.fps:g})" for row in slow),
        )
    if not pretraining_takes(checked.takes):
        nothing = "no take to pretrain on: train and pretrain are empty"
        yield Finding(f"{nothing}, or all held out (data.holdout)")
    if checked.segments.empty:
        return
    labels = checked.labels()
    split = "test" if "test" in labels else "val"
    if split not in labels:
        yield Finding("no take of val or test has labels: probes have nothing to score")
    elif labels[split] == {checked.source.classes.background}:
        yield Finding(f"the takes of {split} show background only: probes have nothing to score")
    takes = checked.takes
    labelled = takes["take_id"].isin(checked.labelled()["take_id"])
    train = takes[(takes["split"] == "train") & labelled]
    remedies = _choosing(checked.params)
    if train.empty:
        yield Finding("no train take has labels: probes have nothing to fit")
    elif remedies and not train["holdout"].any():
        who, instead = ", ".join(remedies), " and ".join(dict.fromkeys(remedies.values()))
        yield Finding(
            f"no labelled train take is held out to choose on ({who}); label more groups of "
            f"train, each class in two or more, or set {instead}",
        )


def _choosing(params: Params) -> dict[str, str]:
    """Return the probes that choose on held-out train takes, and what makes each do without."""
    remedies: dict[str, str] = {}
    if params.probe.common.select_on != "holdout":  # type: ignore[attr-defined]
        return remedies
    for name in params.cells.probes:
        config = getattr(params.probe, name)
        if isinstance(config, TrainedConfig):
            remedies[name] = "probe.common.select_on=last"
        elif name == "linear" and len(config.l2) > 1:
            remedies[name] = "probe.linear.l2 to one strength"
    return remedies


def _unannotated(checked: Checked) -> Iterator[Finding]:
    """Yield takes without a segment, if the params need some."""
    params, segments = checked.params, checked.segments
    without = (~checked.takes["take_id"].isin(segments["take_id"])).sum()
    if without and params.pjepa.segments == "annotated":
        yield Finding(
            f"{without} takes have no segments and pjepa.segments is annotated; use "
            "pjepa.attention=block_causal pjepa.segments=fixed (or pjepa.segments=found)",
        )
    if params.pooler.kind == "action" and not params.data.ships_features and segments.empty:
        yield Finding("no take has labels and pooler.kind is action; label some, or use mean")
    if without and params.tokens.gaps == "drop":
        yield Finding(f"{without} takes have no segments: tokens.gaps=drop leaves nothing")


# Findings outside the source's tables: its list of files, and what only reading everything shows.


def unlisted(params: Params, root: Path) -> list[Finding]:
    """Return whether the Git-tracked list of files is not what is on disk: DVC would not notice."""
    try:
        check_scan(params.data, root, source_list(params.data.source))
    except InputError as error:
        return [warning(str(error))]
    return []


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
    if closed:
        yield Finding(f"{len(closed)} videos cannot be read", tuple(closed))
    if damaged:
        text = f"{len(damaged)} videos with frames that cannot be decoded ({AGAIN})"
        faults = tuple(fault.partition(";")[0] for fault in damaged)
        yield Finding(text, faults, "warning" if config.on_error == "repeat" else "error")
    if jumping:
        text = f"{len(jumping)} jumps of the time stamps (recorded in several parts?)"
        yield warning(text, tuple(jumping))


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
        yield Finding(text, tuple(broken))


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
