"""The tables that describe takes. Labels and splits are kept apart from what stages may see.

`videos.parquet` and `boundaries.parquet` hold no label and no split: extraction reads only these.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pjepa.errors import InputError
from pjepa.roots import Root, rooted
from pjepa.work import read_json, whole_file, write_json

if TYPE_CHECKING:
    import pandas as pd

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
SHIPPED = "shipped"  # `kind` in config.json of patches and pooler where features came with the data
SPLITS = ("train", "val", "test", "pretrain")


@dataclass(frozen=True)
class VideoRow:
    """One take's video, or the frame features shipped instead; names are relative to `root`.

    `features` is a locator `kind:path#key` that `pjepa.takes.shipped` reads; `fps` is then theirs.
    """

    take_id: str
    video: str | None
    fps: float
    duration_s: float
    features: str | None = None
    root: Root = "project"

    @property
    def path(self) -> Path:
        """Where the video is on this machine."""
        if self.video is None:
            raise InputError(f"take {self.take_id}: has features, no video")
        return rooted(self.root, self.video)


@dataclass(frozen=True)
class FeatureInfo:
    """What a data set's own frame features are; kept as metadata of `videos.parquet`."""

    name: str
    lookahead_s: float  # how far into the future a feature has seen
    train_labels: bool = False  # whether the extractor was trained on labels of these takes


@dataclass(frozen=True)
class Classes:
    """Class names by id; `background` is an ordinary id or None. -1 is unknown everywhere."""

    names: tuple[str, ...]
    background: int | None


def write_table(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Writes rows as Parquet, byte-stable."""
    with whole_file(path) as partial:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), partial)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """A table with the expected columns; anything else is an error that names the file."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro takes`") from None
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: missing column(s) {', '.join(missing)}")
    return table.select(schema.names).cast(schema)


def write_videos(path: Path, rows: list[VideoRow], features: FeatureInfo | None = None) -> None:
    """Videos, or the features shipped instead with what they are."""
    schema = VIDEOS
    if features is not None:
        schema = VIDEOS.with_metadata({b"pjepa": json.dumps(asdict(features), sort_keys=True)})
    write_table(path, [asdict(row) for row in rows], schema)


def read_feature_info(path: Path) -> FeatureInfo | None:
    """What the shipped features are; None where there are videos to encode."""
    try:
        stored = (pq.read_schema(path).metadata or {}).get(b"pjepa")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro takes`") from None
    return None if stored is None else FeatureInfo(**json.loads(stored))


def read_videos(path: Path) -> list[VideoRow]:
    """Videos in stable take order."""
    return [VideoRow(**row) for row in read_table(path, VIDEOS).to_pylist()]


def read_boundaries(path: Path) -> dict[str, np.ndarray]:
    """Start and end of every segment in seconds, [S, 2], in time order; absent without any."""
    frame = read_table(path, BOUNDARIES).to_pandas()
    return {
        str(take): part[["start_s", "end_s"]].to_numpy(np.float64)
        for take, part in frame.groupby("take_id", sort=False)
    }


def read_takes(path: Path) -> pd.DataFrame:
    """One row per take: split, holdout, group ..."""
    frame = read_table(path, TAKES).to_pandas()
    unknown = sorted(set(frame["split"]) - set(SPLITS))
    if unknown:
        raise InputError(f"{path}: unknown split {unknown[0]!r}; allowed: {', '.join(SPLITS)}")
    return frame


def read_segments(path: Path) -> pd.DataFrame:
    """One row per annotated segment, in take and time order."""
    return read_table(path, SEGMENTS).to_pandas()


def write_classes(path: Path, classes: Classes) -> None:
    write_json(path, {"names": list(classes.names), "background": classes.background})


def read_classes(path: Path) -> Classes:
    value = read_json(path)
    return Classes(tuple(value["names"]), value["background"])


def pretraining_takes(takes: pd.DataFrame) -> set[str]:
    """What self-supervision may see: train and unlabelled takes, never held-out groups."""
    held = set(takes.loc[takes["holdout"].astype(bool), "group"])
    seen = takes["split"].isin(["train", "pretrain"]) & ~takes["group"].isin(held)
    return set(takes.loc[seen, "take_id"])
