"""Checks of a source before anything is computed on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pjepa.core.tables import SPLITS, VideoRow
from pjepa.core.time_grid import token_count
from pjepa.patches.config import PatchesConfig
from pjepa.patches.identity import open_take
from pjepa.takes.features.shipped import read_shipped
from pjepa.takes.source import Source
from pjepa.takes.sources.scan import check_scan
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.shipped import is_too_slow, picked_rows
from pjepa.tools.data.finding import Finding, Level
from pjepa.tools.data.findings import findings
from pjepa.tools.params import Params
from pjepa.tools.paths import source_list
from pjepa.ui.errors import InputError
from pjepa.ui.progress import track
from pjepa.video.index import AGAIN


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
            with open_take(row.path, config) as video:
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
