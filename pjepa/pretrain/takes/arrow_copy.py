"""An Arrow IPC copy of the features training reads: Parquet cannot be mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pjepa.core.digests import intact, put_aside, sealed_file
from pjepa.streams.schema import feature_type
from pjepa.streams.store import StreamReader, Take
from pjepa.ui.errors import InputError
from pjepa.ui.progress import track


def arrow_copy(stream: StreamReader, takes: Iterable[str], path: Path) -> pa.MemoryMappedFile:
    """Return the memory-mapped copy of `takes`, one record batch per take.

    It is written unless an undamaged one exists.

    Non-finite features are named here, once, not met in the middle of training.
    """
    if path.exists() and not intact(path):
        put_aside(path, "is damaged, it is not what was copied")
    if not path.exists():
        kind = feature_type(stream.info.width, stream.dtype)
        schema = pa.schema([pa.field("feature", kind, nullable=False)])
        wanted = list(takes)
        with (
            sealed_file(path) as partial,
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            read = stream.read_many(wanted)
            for take in track(read, "copy for training", total=len(wanted), unit="take"):
                flat = pa.array(_finite_features(stream, take).reshape(-1))
                column = pa.FixedSizeListArray.from_arrays(flat, type=kind)
                writer.write_batch(pa.record_batch([column], schema=schema))
    return pa.memory_map(str(path))


def _finite_features(stream: StreamReader, take: Take) -> np.ndarray:
    """Return [T, D] at the stream's precision."""
    if not np.isfinite(take.features).all():
        raise InputError(
            f"{stream.path}: take {take.take_id} has features that are not finite; "
            "extract it again or leave it out"
        )
    return take.features.astype(stream.dtype)


def copied_features(source: pa.MemoryMappedFile) -> Iterator[np.ndarray]:
    """Yield views [T, D] of the copied takes, in the order they were given; nothing is read yet."""
    file = pa.ipc.open_file(source)
    width = file.schema.field("feature").type.list_size
    for number in range(file.num_record_batches):
        column = file.get_batch(number).column(0)
        yield column.flatten().to_numpy(zero_copy_only=True).reshape(-1, width)
