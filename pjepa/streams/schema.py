"""The token stream's columns, and the provenance block that travels with every table.

A stream is Parquet with one row per token and one row group per take (paper Sec. 3.1: the take is
the concatenation of its segments; `segment` is c(i), `offset` is r(i)).
"""

from __future__ import annotations

import json
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
Boundaries = Literal["annotated", "found", "fixed", "none"]
SelectionLabels = Literal["none", "holdout", "val", "test"]

LABELS = pa.schema({"take_id": pa.string(), "time_s": pa.float64(), "label": pa.int32()})


class Provenance(BaseModel):
    """What was used upstream of a table: labels, whose boundaries, how far it sees ahead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train_labels: bool = False
    selection_labels: SelectionLabels = "none"
    boundaries_train: Boundaries = "none"
    boundaries_test: Boundaries = "none"
    lookahead_s: float = 0.0
    whole_take: bool = False  # a token may depend on anything in its take (lookahead: the rest)

    def with_segments(self, longest_s: float) -> Provenance:
        """After a step that sees whole annotated segments, the longest being `longest_s`.

        Upstream windows that stay inside segments do not add to it; others do.
        """
        inside = self.boundaries_test == "annotated"
        ahead = max(self.lookahead_s, longest_s) if inside else self.lookahead_s + longest_s
        return self.model_copy(
            update={
                "boundaries_train": "annotated",
                "boundaries_test": "annotated",
                "lookahead_s": ahead,
            }
        )


class StreamInfo(BaseModel):
    """File-level facts: what the features are, at which rate, and where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    source: str
    fps: float
    width: int
    provenance: Provenance = Provenance()

    def metadata(self) -> dict[bytes, bytes]:
        """Parquet key-value metadata, byte-stable."""
        return {b"pjepa": json.dumps(self.model_dump(), sort_keys=True).encode()}


def stream_schema(info: StreamInfo, dtype: str) -> pa.Schema:
    """The Arrow schema of a stream of `info.width` channels."""
    value = pa.float16() if dtype == "float16" else pa.float32()
    fields = [
        ("take_id", pa.string()),
        ("time_s", pa.float64()),
        ("segment", pa.int32()),
        ("offset", pa.int32()),
        ("feature", pa.list_(value, info.width)),
    ]
    return pa.schema(fields, metadata=info.metadata())
