"""The video files of a source: which there are, how long they last, which cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pjepa.errors import InputError
from pjepa.progress import track
from pjepa.video.reader import frame_index

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


def video_files(folder: Path) -> list[str]:
    """Names of the videos below a folder, relative to it, sorted; hidden ones are not looked at."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(
        name.as_posix()
        for name in names
        if name.suffix.lower() in VIDEO_SUFFIXES
        and not any(part.startswith(".") for part in name.parts)
    )


def measured_videos(files: Mapping[str, Path], workers: int) -> dict[str, Measured]:
    """What every video says about itself, by name; packets are counted, not decoded."""
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(_measured, files.values())
        return dict(zip(files, track(found, "takes: videos", len(files), "video"), strict=True))


def _measured(path: Path) -> Measured:
    try:
        info = frame_index(path).info
    except (InputError, OSError) as error:
        return Measured(fault=str(error))
    return Measured(info.fps, info.duration_s)
