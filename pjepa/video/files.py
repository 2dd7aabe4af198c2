"""The video files of a source, their durations, and the ones that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pjepa.core.tables import MAX_GAP_S, VideoRow
from pjepa.ui.console import InputError, say, track
from pjepa.video.index import frame_index
from pjepa.video.timeline import Jump

VIDEO_SUFFIXES = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts",
    ".3gp", ".flv", ".ogv", ".wmv",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Rate and duration of a video as its frames tell them, or why it cannot be read."""

    fps: float = 0.0
    duration_s: float = 0.0
    fault: str = ""
    jumps: tuple[Jump, ...] = ()
    max_gap_s: float = MAX_GAP_S

    def row(self, take_id: str, video: str) -> VideoRow:
        """Return the row of a take; `video` is relative to the data root."""
        gap = self.max_gap_s
        return VideoRow(take_id, video, self.fps, self.duration_s, root="data", max_gap_s=gap)


def check_name(path: Path) -> None:
    """Raise for a name that no table can hold: archives made elsewhere hold other encodings."""
    text = os.fsencode(path).decode(errors="backslashreplace")
    if text != str(path):
        raise InputError(f"{text}: the name is not UTF-8 text; rename the video")


def video_files(folder: Path) -> list[str]:
    """Return what `found_videos` does; raise for a name that no table can hold."""
    names = found_videos(folder)
    for name in names:
        check_name(folder / name)
    return names


def found_videos(folder: Path) -> list[str]:
    """Return the names of the videos below a folder, relative to it, sorted; none hidden."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(
        name.as_posix()
        for name in names
        if name.suffix.lower() in VIDEO_SUFFIXES
        and not any(part.startswith(".") for part in name.parts)
    )


def measured_videos(
    files: Mapping[str, Path], workers: int, max_gap_s: float = MAX_GAP_S
) -> dict[str, Measured]:
    """Return the facts of every video by name; report where time stamps jump.

    Packets are counted; a file is decoded only where they do not tell its frames apart.
    """
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(lambda path: _measured(path, max_gap_s), files.values())
        measured = dict(
            zip(files, track(results, "takes: videos", len(files), "video"), strict=True)
        )
    for name, one in measured.items():
        for jump in one.jumps:
            say(f"takes: {name}: {jump}: a new recording begins there")
    return measured


def _measured(path: Path, max_gap_s: float) -> Measured:
    try:
        info = frame_index(path, max_gap_s).info
    except (InputError, OSError) as error:
        return Measured(fault=str(error))
    return Measured(info.fps, info.duration_s, jumps=info.jumps, max_gap_s=max_gap_s)
