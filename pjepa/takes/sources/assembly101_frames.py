"""Where the frames of an Assembly101 recording are: TSM rows in LMDB or numpy, or the video itself.

| input | layout below the source's folder                                                     |
|-------|--------------------------------------------------------------------------------------|
| tsm   | `db_TSM_features/<view>/data.mdb` or `<view>/data.mdb`, frames from 1                |
| tsm   | `TSM_features/<sequence>/<view>/features.npy` [2048, T], column f: frame f       |
| video | `<sequence>/<view>.mp4`, also below `videos/` or `recordings/`                       |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pjepa.core.roots import inside
from pjepa.core.tables import VideoRow
from pjepa.takes.config import Assembly101Config, DataConfig
from pjepa.takes.features.shipped import locator, numpy_array, span_key
from pjepa.takes.features.tsm_lmdb import last_frame
from pjepa.takes.folders import below
from pjepa.ui.errors import InputError
from pjepa.video.files import Measured, measured_videos

FPS = 30.0  # of all frame numbers; the recordings have 60
BEYOND = 10**10 - 1  # a frame number after every other
RowAndEnd = tuple[VideoRow | None, int]  # the row, and the first frame after those that are there


@dataclass(frozen=True)
class LmdbFrames:
    """TSM rows of one view in an LMDB environment.

    `row` of every layout: a take's frames first .. end - 1; `end` None: all there are.
    """

    own: Assembly101Config
    name: str
    store: Path
    what: str = "features"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        key = f"{sequence}/{self.own.view}/{self.own.view}"
        last = last_frame(self.store, key, end or BEYOND)
        first, stop = max(1, first), 0 if last is None else last + 1
        where = locator("lmdb", below(self.own.path, self.name), f"{key}:{first}:{stop}")
        return _feature_row(take_id, where, first, stop)


@dataclass(frozen=True)
class NumpyFrames:
    """TSM rows of one view, an array per recording."""

    own: Assembly101Config
    base: Path
    what: str = "features"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        name = f"TSM_features/{sequence}/{self.own.view}/features.npy"
        file = inside(self.base, name)
        columns = numpy_array(file).shape[1] if file.is_file() else 0
        stop = min(columns, end or columns)
        where = locator("npy-dt", below(self.own.path, name), span_key(first, stop))
        return _feature_row(take_id, where, first, stop)


@dataclass(frozen=True)
class VideoFrames:
    """The recordings; every take of one runs over all of it."""

    own: Assembly101Config
    files: dict[str, str | None]
    measured: dict[str, Measured]
    what: str = "video"

    def row(self, take_id: str, sequence: str, first: int, end: int | None) -> RowAndEnd:
        found, file = self.measured.get(sequence), self.files[sequence]
        if found is None or file is None or found.fault:
            return None, 0
        video = below(self.own.path, file)
        row = VideoRow(take_id, video, found.fps, found.duration_s, root="data")
        return row, round(found.duration_s * FPS) + 1


FrameSource = LmdbFrames | NumpyFrames | VideoFrames


def opened_frames(
    own: Assembly101Config, base: Path, sequences: Iterable[str], config: DataConfig
) -> FrameSource:
    """Return the layout found on disk for the requested view."""
    if own.input == "video":
        files = {name: _video(own, base, name) for name in sorted(sequences)}
        here = {name: base / file for name, file in files.items() if file}
        return VideoFrames(own, files, measured_videos(here, config.workers, config.max_gap_s))
    for folder in ("db_TSM_features/", ""):
        store = inside(base, f"{folder}{own.view}")
        if (store / "data.mdb").is_file():
            return LmdbFrames(own, f"{folder}{own.view}", store)
    if (base / "TSM_features").is_dir():
        return NumpyFrames(own, base)
    raise InputError(
        f"{base}: no features of view {own.view!r}: expected db_TSM_features/{own.view}/data.mdb, "
        f"{own.view}/data.mdb or TSM_features/; set data.assembly101.view"
    )


def _feature_row(take_id: str, where: str, first: int, stop: int) -> RowAndEnd:
    if first >= stop:
        return None, 0
    seconds = (stop - first) / FPS
    return VideoRow(take_id, None, FPS, seconds, features=where, root="data"), stop


def _video(own: Assembly101Config, base: Path, sequence: str) -> str | None:
    for folder in ("", "videos/", "recordings/"):
        name = f"{folder}{sequence}/{own.view}.mp4"
        if inside(base, name).is_file():
            return name
    return None
