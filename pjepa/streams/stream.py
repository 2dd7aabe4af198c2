"""Reading and writing token streams: one row group per take, one sequential read per take.

A stream is one Parquet file, or a folder of parts of at most 2 GB under the same name
(`stream.parquet/part-00000.parquet`, ...): writer and reader are the same for both, and a part is
a stream of its own.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pjepa.core.runs import runs
from pjepa.core.tables import readable_table
from pjepa.storage.writing import atomic_file
from pjepa.streams.provenance import LABELS, StreamInfo, stream_schema
from pjepa.ui.console import InputError

PART_BYTES = 2 * 1024**3  # of features; a take is never split, so a longer one is a part alone
DECODERS = 2  # threads that decode; takes come back in order, whatever their number
_PLACE = ["time_s", "segment", "offset"]


@dataclass(frozen=True)
class Take:
    """One take's tokens. `segment` is c(i) (-1 outside any annotation), `offset` is r(i)."""

    take_id: str
    features: np.ndarray  # [T, D] float32
    times: np.ndarray  # [T] float64, seconds from the first displayed frame
    segment: np.ndarray  # [T] int32
    offset: np.ndarray  # [T] int32
    recording: np.ndarray | None = None  # [T] grows where time stamps jump; None: they do not

    @property
    def segment_lengths(self) -> list[int]:
        """Return the number of tokens of every annotated segment, in order; gaps are segments."""
        lengths: list[int] = runs(self.segment)[1].tolist()
        return lengths

    def with_features(self, features: np.ndarray) -> Take:
        """Return the same tokens, represented differently."""
        return replace(self, features=features)


class StreamWriter:
    """A writer of takes, one by one; the stream appears under its name when all are written."""

    def __init__(
        self, path: Path, info: StreamInfo, dtype: str = "float16", part_bytes: int | None = None
    ) -> None:
        self.info, self.schema = info, stream_schema(info, dtype)
        self.dtype = np.float16 if dtype == "float16" else np.float32
        self.part_bytes, self.bytes, self.parts = part_bytes or PART_BYTES, 0, 1
        self.whole = atomic_file(path)

    def __enter__(self) -> StreamWriter:
        self.partial = self.whole.__enter__()
        self.writer = self._open(self.partial)
        return self

    def write(self, take: Take) -> None:
        """Append one take as one row group."""
        features = self._checked(take)
        if self.bytes and self.bytes + features.nbytes > self.part_bytes:
            self._next_part()
        self.bytes += features.nbytes
        kind = self.schema.field("feature").type
        columns = [
            pa.array([take.take_id] * len(take.times)),
            pa.array(np.asarray(take.times, np.float64)),
            pa.array(np.asarray(take.segment, np.int32)),
            pa.array(np.asarray(take.offset, np.int32)),
            pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), type=kind),
        ]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        self.writer.write_table(table, row_group_size=len(take.times))

    def _checked(self, take: Take) -> np.ndarray:
        """Return the take's features [T, D] as they are stored."""
        with np.errstate(over="ignore"):  # what overflows is named below
            features = np.ascontiguousarray(take.features, dtype=self.dtype)
        if features.shape != (len(take.times), self.info.width):
            raise InputError(
                f"take {take.take_id}: features are {features.shape}, "
                f"expected {(len(take.times), self.info.width)}"
            )
        if not len(features):
            raise InputError(f"take {take.take_id}: no token; leave the take out")
        if not np.isfinite(features).all():
            raise InputError(_not_finite(take, features))
        return features

    def _open(self, path: Path) -> pq.ParquetWriter:
        # Dictionary pages and compression cost time and save 8 % on fp16 features.
        return pq.ParquetWriter(
            path,
            self.schema,
            compression={"feature.list.element": "none"},
            use_dictionary=["take_id"],
            write_statistics=["take_id", "time_s", "segment"],
            write_page_checksum=True,  # a flipped bit is found by whoever reads the page
        )

    def _next_part(self) -> None:
        """Close the part; with the second one the stream becomes a folder."""
        self.writer.close()
        if self.parts == 1:
            first = self.partial.rename(self.partial.with_name(f".first{self.partial.name}"))
            self.partial.mkdir()
            first.rename(self.partial / _part(0))
        self.writer = self._open(self.partial / _part(self.parts))
        self.parts, self.bytes = self.parts + 1, 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writer.close()
        self.whole.__exit__(kind, error, trace)


def _not_finite(take: Take, stored: np.ndarray) -> str:
    """Return what is wrong with the first number that is not finite, as given or as stored."""
    given = ~np.isfinite(take.features)
    token, channel = np.argwhere(given if given.any() else ~np.isfinite(stored))[0]
    value = take.features[token, channel]
    at = f"{value:g} at {take.times[token]:g} s, channel {channel}"
    if not given.any():
        return (
            f"take {take.take_id}: feature {at} does not fit {stored.dtype}; set the stage's "
            "dtype to float32 (tokens.dtype, features.dtype)"
        )
    return f"take {take.take_id}: feature is {at}; check the features"


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


class StreamReader:
    """Random access to the takes of a stream: one take is one row group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
        if not self._parts:
            raise InputError(f"{path}: a folder without parts; run the stage that writes it")
        files = [_parquet(part) for part in self._parts]
        self.schema = files[0].schema_arrow
        self.info = _info(self._parts[0], self.schema)
        for part, file in zip(self._parts, files, strict=True):
            if not file.schema_arrow.equals(self.schema, check_metadata=True):
                raise InputError(f"{part}: another stream than {self._parts[0].name}")
        self._metadata = [file.metadata for file in files]
        self._group: dict[str, tuple[int, int]] = {}  # take: part, row group
        self.lengths: list[int] = []
        for number, groups in enumerate(self._metadata):
            self._add_groups(number, groups)
        self.takes: list[str] = list(self._group)
        self._handles = threading.local()  # a Parquet handle must not be shared by threads

    def _add_groups(self, part: int, groups: pq.FileMetaData) -> None:
        for index in range(groups.num_row_groups):
            group = groups.row_group(index)
            take = group.column(0).statistics.min
            if take in self._group:
                raise InputError(f"{self._parts[part]}: take {take!r} appears twice")
            self._group[take] = (part, index)
            self.lengths.append(group.num_rows)

    @property
    def dtype(self) -> str:
        """Return how features are stored: float16 or float32."""
        stored = self.schema.field("feature").type.value_type
        return "float16" if stored == pa.float16() else "float32"

    def read(self, take_id: str, as_stored: bool = False) -> Take:
        """Return one take, features as float32 or, if asked for, as stored."""
        table = self._table(take_id, [*_PLACE, "feature"])
        flat = table.column("feature").combine_chunks().flatten()
        kind = self.dtype if as_stored else "float32"
        features = flat.to_numpy(zero_copy_only=False).astype(kind)
        return self._take(take_id, features.reshape(-1, self.info.width), table)

    def read_many(
        self, takes: Iterable[str] | None = None, threads: int = DECODERS
    ) -> Iterator[Take]:
        """Yield these takes (all by default) in order; the next ones are decoded while one is used.

        At most `threads` + 1 takes are in memory beside the one that is used.
        """
        names: Sequence[str] = list(self.takes if takes is None else takes)
        with ThreadPoolExecutor(threads, "decode") as pool:
            ahead: deque[Future[Take]] = deque()
            try:
                for take_id in names:
                    ahead.append(pool.submit(self.read, take_id))
                    if len(ahead) > threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def read_layout(self, take_id: str) -> Take:
        """Return one take's times and segments without its features ([T, 0]): cheap."""
        table = self._table(take_id, _PLACE)
        return self._take(take_id, np.zeros((len(table), 0), np.float32), table)

    def _take(self, take_id: str, features: np.ndarray, table: pa.Table) -> Take:
        times, segment, offset = (table.column(name).to_numpy() for name in _PLACE)
        recording = self.info.recordings(take_id, times)
        return Take(take_id, features, times, segment, offset, recording)

    def _table(self, take_id: str, columns: list[str]) -> pa.Table:
        if take_id not in self._group:
            raise InputError(f"{self.path}: no take {take_id!r}")
        part, group = self._group[take_id]
        try:
            file = self._file(part)
            return file.read_row_group(group, columns=columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{self._parts[part]}: take {take_id} is damaged on the disk ({reason}); "
                "`pjepa doctor --verify` says what else is"
            ) from None

    def _file(self, part: int) -> pq.ParquetFile:
        """Return this thread's own handle; `pre_buffer` reads a take's columns at once."""
        opened: dict[int, pq.ParquetFile] = self._handles.__dict__.setdefault("opened", {})
        if part not in opened:
            opened[part] = pq.ParquetFile(
                self._parts[part],
                metadata=self._metadata[part],
                pre_buffer=True,
                page_checksum_verification=True,
            )
        return opened[part]


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such stream; run the stage that writes it") from None
    except (pa.ArrowInvalid, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a whole Parquet file ({reason})") from None


def _info(path: Path, schema: pa.Schema) -> StreamInfo:
    metadata = schema.metadata or {}
    if b"pjepa" not in metadata:
        raise InputError(f"{path}: not a token stream (no pjepa metadata)")
    try:
        info = StreamInfo.model_validate(json.loads(metadata[b"pjepa"]))
        stored = schema.field("feature").type
        if getattr(stored, "list_size", None) != info.width:
            raise ValueError(f"features are {stored}, expected {info.width} numbers")
    except (ValueError, KeyError, RecursionError) as error:  # pydantic's error is a ValueError
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a token stream of this version ({reason})") from None
    return info


def read_stream(path: str | Path) -> StreamReader:
    """Open a token stream or a representation."""
    return StreamReader(Path(path))


def write_labels(path: Path, labels: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """Write (take_id, times, labels) triples as they come, one row group per take."""
    with atomic_file(path) as partial, pq.ParquetWriter(partial, LABELS) as writer:
        for take_id, times, label in labels:
            columns = [
                pa.array([take_id] * len(times)),
                pa.array(np.asarray(times, np.float64)),
                pa.array(np.asarray(label, np.int32)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=LABELS))


def read_labels(path: Path) -> dict[str, np.ndarray]:
    """Return the label of every token, per take, in the stream's order."""
    with readable_table(path, "tokens"):
        table = pq.read_table(path, columns=["take_id", "label"], read_dictionary=["take_id"])
        if table.column_names != ["take_id", "label"]:
            raise InputError(f"{path}: expected take_id and label; run `dvc repro tokens`")
    take = table.column("take_id").combine_chunks()
    number = take.indices.to_numpy()
    order = np.argsort(number, kind="stable")
    label = table.column("label").to_numpy()[order]
    ends = np.cumsum(np.bincount(number, minlength=len(take.dictionary)))
    names = take.dictionary.to_pylist()
    return dict(zip(names, np.split(label, ends[:-1]), strict=True))
