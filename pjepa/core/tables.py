"""The tables that describe takes. Labels and splits are kept apart from what stages may see.

`videos.parquet` and `boundaries.parquet` hold no label and no split: extraction reads only these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pjepa.storage.reading import read_object
from pjepa.storage.roots import Root, rooted
from pjepa.storage.writing import atomic_file, write_json
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    import pandas as pd

MAX_GAP_S = 10.0  # without a frame; time stamps that are further apart jump
MAX_GAP = b"max_gap_s"  # metadata of the table of videos, where it is another
VIDEOS = pa.schema(
    {
        "take_id": pa.string(),
        "video": pa.string(),
        "fps": pa.float64(),
        "duration_s": pa.float64(),
        "features": pa.string(),
        "root": pa.string(),
    }
)
BOUNDARIES = pa.schema({"take_id": pa.string(), "start_s": pa.float64(), "end_s": pa.float64()})
TAKES = pa.schema(
    {
        "take_id": pa.string(),
        "dataset": pa.string(),
        "split": pa.string(),
        "holdout": pa.bool_(),
        "task": pa.string(),
        "recording": pa.string(),
        "participant": pa.string(),
        "view": pa.string(),
        "group": pa.string(),
    }
)
SEGMENTS = pa.schema(
    {
        "take_id": pa.string(),
        "segment": pa.int32(),
        "start_s": pa.float64(),
        "end_s": pa.float64(),
        "label": pa.int32(),
    }
)
BoundaryTimes = Mapping[str, NDArray[np.float64]]  # [S, 2] start and end of segments, per take
SHIPPED = "shipped"  # `kind` in config.json of patches and pooler where features came with the data
SPLITS = ("train", "val", "test", "pretrain")


@dataclass(frozen=True)
class VideoRow:
    """One take's video, or the frame features shipped instead; names are relative to `root`.

    `features` is a locator `kind:path#key` that `pjepa.takes.shipped` reads; `fps` is then theirs.
    Pauses between frames up to `max_gap_s` (the same in all rows) count as duration.
    """

    take_id: str
    video: str | None
    fps: float
    duration_s: float
    features: str | None = None
    root: Root = "project"
    max_gap_s: float = MAX_GAP_S

    @property
    def path(self) -> Path:
        """Return where the video is on this machine."""
        if self.video is None:
            raise InputError(f"take {self.take_id}: has features, no video")
        return rooted(self.root, self.video)


@dataclass(frozen=True)
class FeatureInfo:
    """A description of a data set's own frame features; metadata of `videos.parquet`."""

    name: str
    lookahead_s: float  # how far into the future a feature has seen
    train_labels: bool = False  # whether the extractor was trained on labels of these takes


@dataclass(frozen=True)
class Classes:
    """Class names by id; `background` is an ordinary id or None. -1 is unknown everywhere."""

    names: tuple[str, ...]
    background: int | None

    def numbered(self, label: int) -> str:
        """Return a class as shown to users: its number and name, on one line."""
        return "unknown" if label < 0 else f"{label} {' '.join(self.names[label].split())}"


def write_table(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Write rows as Parquet, byte-stable."""
    with atomic_file(path) as partial:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), partial)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Return a table with the expected columns; raise an error that names the file otherwise."""
    with readable_table(path):
        table = pq.read_table(path)
        missing = [name for name in schema.names if name not in table.column_names]
        if missing:
            raise InputError(f"{path}: missing column(s) {', '.join(missing)}")
        return table.select(schema.names).cast(schema)


@contextmanager
def readable_table(path: Path, stage: str = "takes") -> Iterator[None]:
    """Raise a one-line error for anything wrong with a Parquet file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro {stage}`") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path}: not a table of this project ({reason}); run `dvc repro {stage}`"
        ) from None


def write_videos(path: Path, rows: list[VideoRow], features: FeatureInfo | None = None) -> None:
    """Write the table of videos, or of the shipped features and what they are."""
    gap = rows[0].max_gap_s if rows else MAX_GAP_S
    about = {} if gap == MAX_GAP_S else {MAX_GAP: str(gap).encode()}
    if features is not None:
        about[b"pjepa"] = json.dumps(asdict(features), sort_keys=True).encode()
    write_table(path, [asdict(row) for row in rows], VIDEOS.with_metadata(about or None))


def read_feature_info(path: Path) -> FeatureInfo | None:
    """Return the description of the shipped features; None if there are videos to encode."""
    with readable_table(path):
        stored = (pq.read_schema(path).metadata or {}).get(b"pjepa")
        return None if stored is None else FeatureInfo(**json.loads(stored))


def read_videos(path: Path) -> list[VideoRow]:
    """Return videos in stable take order."""
    rows = read_table(path, VIDEOS).to_pylist()
    gap = float((pq.read_schema(path).metadata or {}).get(MAX_GAP, MAX_GAP_S))
    return [VideoRow(**row, max_gap_s=gap) for row in rows]


def read_boundaries(path: Path) -> BoundaryTimes:
    """Return start and end of every segment per take in seconds, [S, 2], in time order.

    Takes without segments are absent.
    """
    frame = read_table(path, BOUNDARIES).to_pandas()
    return {
        str(take): part[["start_s", "end_s"]].to_numpy(np.float64)
        for take, part in frame.groupby("take_id", sort=False)
    }


def read_takes(path: Path) -> pd.DataFrame:
    """Return one row per take: split, holdout, group ..."""
    frame = read_table(path, TAKES).to_pandas()
    unknown = sorted(set(frame["split"]) - set(SPLITS))
    if unknown:
        raise InputError(f"{path}: unknown split {unknown[0]!r}; allowed: {', '.join(SPLITS)}")
    return frame


def read_segments(path: Path) -> pd.DataFrame:
    """Return one row per annotated segment, in take and time order."""
    return read_table(path, SEGMENTS).to_pandas()


def write_classes(path: Path, classes: Classes) -> None:
    write_json(path, {"names": list(classes.names), "background": classes.background})


def read_classes(path: Path) -> Classes:
    value = read_object(path, "names", "background")
    names, background = value["names"], value["background"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: names: expected a list of class names")
    if background is not None and (type(background) is not int or not 0 <= background < len(names)):
        raise InputError(f"{path}: background {background!r}: expected a class id or null")
    return Classes(tuple(names), background)


def pretraining_takes(takes: pd.DataFrame) -> set[str]:
    """Return the takes for pretraining: train and unlabelled ones, never held-out groups."""
    held = set(takes.loc[takes["holdout"].astype(bool), "group"])
    seen = takes["split"].isin(["train", "pretrain"]) & ~takes["group"].isin(held)
    return set(takes.loc[seen, "take_id"])


# File names shared by several stages; folders belong to the stages (`pjepa.tools.paths`).

PARAMS = Path("params.yaml")  # in the folder a stage runs in, as for DVC

VIDEOS_FILE = "videos.parquet"
BOUNDARIES_FILE = "boundaries.parquet"
TAKES_FILE = "takes.parquet"
SEGMENTS_FILE = "segments.parquet"
CLASSES_FILE = "classes.json"
