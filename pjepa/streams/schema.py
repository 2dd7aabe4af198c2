"""The token stream's columns, and the provenance block that travels with every table.

A stream is Parquet with one row per token and one row group per take (paper Sec. 3.1: the take is
the concatenation of its segments; `segment` is c(i), `offset` is r(i)).
"""

from __future__ import annotations

import json
from typing import Literal, get_args

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
Boundaries = Literal["annotated", "found", "fixed", "none"]
SelectionLabels = Literal["none", "holdout", "val", "test"]


def widest_selection(*labels: SelectionLabels) -> SelectionLabels:
    """The labels that saw most: none < holdout < val < test."""
    return max(labels, key=get_args(SelectionLabels).index)


LABELS = pa.schema({"take_id": pa.string(), "time_s": pa.float64(), "label": pa.int32()})


class Provenance(BaseModel):
    """What was used upstream of a table: labels, whose boundaries, how far it sees ahead."""

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

    def with_selection(self, labels: SelectionLabels) -> Provenance:
        """After something upstream was chosen with these labels; the widest choice stays."""
        widest = widest_selection(self.selection_labels, labels)
        return self.model_copy(update={"selection_labels": widest})

    def with_boundaries(self, boundaries: Boundaries) -> Provenance:
        """After a step that knows these boundaries; annotated ones known before stay said."""
        both = {
            name: "annotated" if getattr(self, name) == "annotated" else boundaries
            for name in ("boundaries_train", "boundaries_test")
        }
        return self.model_copy(update=both)

    def with_segments(self, longest_s: float) -> Provenance:
        """After a step that sees whole annotated segments, the longest being `longest_s`.

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

    def metadata(self) -> dict[bytes, bytes]:
        """Parquet key-value metadata, byte-stable."""
        return {b"pjepa": json.dumps(self.model_dump(), sort_keys=True).encode()}


def feature_type(width: int, dtype: str) -> pa.DataType:
    """A list of `width` numbers, none of them missing: Parquet then decodes faster."""
    value = pa.float16() if dtype == "float16" else pa.float32()
    return pa.list_(pa.field("element", value, nullable=False), width)


def stream_schema(info: StreamInfo, dtype: str) -> pa.Schema:
    """The Arrow schema of a stream of `info.width` channels."""
    fields = [
        ("take_id", pa.string()),
        ("time_s", pa.float64()),
        ("segment", pa.int32()),
        ("offset", pa.int32()),
        pa.field("feature", feature_type(info.width, dtype), nullable=False),
    ]
    return pa.schema(fields, metadata=info.metadata())
