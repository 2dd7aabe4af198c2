"""Reading and writing token streams: one row group per take, one sequential read per take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pjepa.errors import InputError
from pjepa.streams.schema import LABELS, StreamInfo, stream_schema
from pjepa.work import whole_file

_PLACE = ("time_s", "segment", "offset")


@dataclass(frozen=True)
class Take:
    """One take's tokens. `segment` is c(i) (-1 outside any annotation), `offset` is r(i)."""

    take_id: str
    features: np.ndarray  # [T, D] float32
    times: np.ndarray  # [T] float64, seconds from the first displayed frame
    segment: np.ndarray  # [T] int32
    offset: np.ndarray  # [T] int32

    def with_features(self, features: np.ndarray) -> Take:
        """The same tokens, represented differently."""
        return Take(self.take_id, features, self.times, self.segment, self.offset)


class StreamWriter:
    """Writes takes one by one; the file appears under its name only when all are written."""

    def __init__(self, path: Path, info: StreamInfo, dtype: str = "float16") -> None:
        self.info, self.schema = info, stream_schema(info, dtype)
        self.dtype = np.float16 if dtype == "float16" else np.float32
        self.whole = whole_file(path)

    def __enter__(self) -> StreamWriter:
        # Dictionary pages and compression cost time and save 8 % on fp16 features.
        self.writer = pq.ParquetWriter(
            self.whole.__enter__(),
            self.schema,
            compression={"feature.list.element": "none"},
            use_dictionary=["take_id"],
            write_statistics=["take_id", "time_s", "segment"],
        )
        return self

    def write(self, take: Take) -> None:
        """Appends one take as one row group."""
        features = np.ascontiguousarray(take.features, dtype=self.dtype)
        if features.shape != (len(take.times), self.info.width):
            raise InputError(
                f"take {take.take_id}: features are {features.shape}, "
                f"expected {(len(take.times), self.info.width)}"
            )
        if not np.isfinite(features).all():
            raise InputError(
                f"take {take.take_id}: features are not finite as {features.dtype}; "
                "check the backbone or use dtype float32"
            )
        column = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), self.info.width)
        columns = [
            pa.array([take.take_id] * len(take.times)),
            pa.array(np.asarray(take.times, np.float64)),
            pa.array(np.asarray(take.segment, np.int32)),
            pa.array(np.asarray(take.offset, np.int32)),
            column,
        ]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        self.writer.write_table(table, row_group_size=max(1, len(take.times)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writer.close()
        self.whole.__exit__(kind, error, trace)


class StreamReader:
    """Random access to the takes of a stream: one take is one row group."""

    def __init__(self, path: Path) -> None:
        try:
            self.file = pq.ParquetFile(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such stream; run the stage that writes it") from None
        metadata = self.file.schema_arrow.metadata or {}
        if b"pjepa" not in metadata:
            raise InputError(f"{path}: not a token stream (no pjepa metadata)")
        self.path = path
        self.info = StreamInfo.model_validate(json.loads(metadata[b"pjepa"]))
        groups = self.file.metadata
        self.takes: list[str] = [
            groups.row_group(index).column(0).statistics.min
            for index in range(groups.num_row_groups)
        ]
        self.lengths: list[int] = [
            groups.row_group(index).num_rows for index in range(groups.num_row_groups)
        ]
        self._group = {take: index for index, take in enumerate(self.takes)}

    @property
    def dtype(self) -> str:
        """How features are stored: float16 or float32."""
        stored = self.file.schema_arrow.field("feature").type.value_type
        return "float16" if stored == pa.float16() else "float32"

    def read(self, take_id: str) -> Take:
        """One take, features as float32."""
        table = self._table(take_id, [*_PLACE, "feature"])
        column = table.column("feature").combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        features = flat.reshape(-1, self.info.width).astype(np.float32)  # [T, D]
        return Take(take_id, features, *(table.column(name).to_numpy() for name in _PLACE))

    def read_layout(self, take_id: str) -> Take:
        """One take's times and segments without its features ([T, 0]): cheap."""
        table = self._table(take_id, list(_PLACE))
        empty = np.zeros((len(table), 0), np.float32)
        return Take(take_id, empty, *(table.column(name).to_numpy() for name in _PLACE))

    def _table(self, take_id: str, columns: list[str]) -> pa.Table:
        if take_id not in self._group:
            raise InputError(f"{self.path}: no take {take_id!r}")
        return self.file.read_row_group(self._group[take_id], columns=columns)


def read_stream(path: str | Path) -> StreamReader:
    """Opens a token stream or a representation."""
    return StreamReader(Path(path))


def write_labels(path: Path, labels: list[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """Writes (take_id, times, labels) triples, one row group per take."""
    with whole_file(path) as partial, pq.ParquetWriter(partial, LABELS) as writer:
        for take_id, times, label in labels:
            columns = [
                pa.array([take_id] * len(times)),
                pa.array(np.asarray(times, np.float64)),
                pa.array(np.asarray(label, np.int32)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=LABELS))


def read_labels(path: Path) -> dict[str, np.ndarray]:
    """The label of every token, per take, in the stream's order."""
    try:
        frame = pq.read_table(path).to_pandas()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run `dvc repro tokens`") from None
    return {
        str(take): part["label"].to_numpy(np.int32)
        for take, part in frame.groupby("take_id", sort=False)
    }
