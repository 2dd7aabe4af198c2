"""The token stream's columns, and the provenance block that travels with every table.

A stream is Parquet with one row per token and one row group per take (paper Sec. 3.1: the take is
the concatenation of its segments; `segment` is c(i), `offset` is r(i)).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from pjepa.core.time import recordings

SCHEMA_VERSION = 1
Boundaries = Literal["annotated", "found", "fixed", "none"]
SelectionLabels = Literal["none", "holdout", "val", "test"]


def widest_selection(*labels: SelectionLabels) -> SelectionLabels:
    """Return the widest of the given labels: none < holdout < val < test."""
    return max(labels, key=get_args(SelectionLabels).index)


LABELS = pa.schema({"take_id": pa.string(), "time_s": pa.float64(), "label": pa.int32()})


class Provenance(BaseModel):
    """The upstream facts of a table: labels used, origin of boundaries, look-ahead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train_labels: bool = False
    label_folds: int = (
        0  # of train_labels: train tokens come from models blind to their own, if > 0
    )
    selection_labels: SelectionLabels = "none"
    boundaries_train: Boundaries = "none"
    boundaries_test: Boundaries = "none"
    lookahead_s: float = 0.0
    inside_segments: bool = False  # the lookahead so far ends with the annotated segment
    whole_take: bool = False  # a token may depend on anything in its take (lookahead: the rest)
    frames_repeated: int = 0  # undecodable, replaced by the frame before
    devices: tuple[str, ...] = ()  # kinds of device that computed it: `cpu`, `cuda`

    def with_selection(self, labels: SelectionLabels) -> Provenance:
        """Return the provenance after a choice made with these labels; the widest choice stays."""
        widest = widest_selection(self.selection_labels, labels)
        return self.model_copy(update={"selection_labels": widest})

    def with_boundaries(self, boundaries: Boundaries) -> Provenance:
        """Return the provenance after a step that knows these boundaries.

        Annotated boundaries known earlier stay recorded.
        """
        both = {
            name: "annotated" if getattr(self, name) == "annotated" else boundaries
            for name in ("boundaries_train", "boundaries_test")
        }
        return self.model_copy(update=both)

    def with_segments(self, longest_s: float) -> Provenance:
        """Return the provenance after a step that sees whole segments of up to `longest_s`.

        Upstream windows that stay inside segments do not add to it; others do.
        """
        ahead = self.lookahead_s + longest_s
        if self.inside_segments:
            ahead = max(self.lookahead_s, longest_s)
        return self.with_boundaries("annotated").model_copy(update={"lookahead_s": ahead})


class PoolerInfo(BaseModel):
    """Which pooler made the tokens; `sha256` is over all its files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    sha256: str
    supervised: bool


class StreamInfo(BaseModel):
    """File-level facts: what the features are, at which rate, and where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    source: str
    fps: float
    width: int
    provenance: Provenance = Provenance()
    pooler: PoolerInfo | None = None  # None: the features came without patches
    cuts: Mapping[str, tuple[float, ...]] = {}  # take: seconds at which its time stamps jump

    def with_device(self, kind: str) -> StreamInfo:
        """Return the facts of a stream that a device of this kind computed, upstream ones kept."""
        kinds = sorted({*self.provenance.devices, kind})
        seen = self.provenance.model_copy(update={"devices": tuple(kinds)})
        return self.model_copy(update={"provenance": seen})

    def with_repeated(self, frames: int) -> StreamInfo:
        """Return the facts of a stream in which so many undecodable frames were replaced."""
        seen = self.provenance.model_copy(update={"frames_repeated": frames})
        return self.model_copy(update={"provenance": seen})

    def recordings(self, take_id: str, times: np.ndarray) -> np.ndarray | None:
        """Return which recording of the take each token is in, [T]; None where there is one."""
        if take_id not in self.cuts:
            return None
        return recordings(times, self.cuts[take_id])

    def metadata(self) -> dict[bytes, bytes]:
        """Return Parquet key-value metadata, byte-stable."""
        facts = self.model_dump(exclude=None if self.cuts else {"cuts"})
        return {b"pjepa": json.dumps(facts, sort_keys=True).encode()}


def feature_type(width: int, dtype: str) -> pa.DataType:
    """Return a list of `width` numbers, none of them missing: Parquet then decodes faster."""
    value = pa.float16() if dtype == "float16" else pa.float32()
    return pa.list_(pa.field("element", value, nullable=False), width)


def stream_schema(info: StreamInfo, dtype: str) -> pa.Schema:
    """Return the Arrow schema of a stream of `info.width` channels."""
    fields = [
        ("take_id", pa.string()),
        ("time_s", pa.float64()),
        ("segment", pa.int32()),
        ("offset", pa.int32()),
        pa.field("feature", feature_type(info.width, dtype), nullable=False),
    ]
    return pa.schema(fields, metadata=info.metadata())
