"""The numbers of a Parquet column, read as they lie in the file.

pyarrow decodes float16 one number at a time, at a tenth of the speed of a copy. The features of a
stream are stored plain and uncompressed, so a page is a header, the levels of its lists, and the
numbers themselves. Whatever is not exactly that, a wrong checksum included, is left to pyarrow,
which reads it or says what is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

# Fields of a page's header (parquet.thrift), and what their values mean.
TYPE, SIZE, CHECKSUM, DATA = 1, 3, 4, 5
DATA_PAGE = 0  # of TYPE
COUNT, ENCODING = 1, 2  # of DATA
PLAIN = 0  # of ENCODING
NUMBER, STRUCT = 5, 12  # kinds of Thrift's compact protocol


def is_plain(column: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column of a row group may be read by `plain_values`."""
    return (
        column.compression == "UNCOMPRESSED"
        and not column.has_dictionary_page
        and set(column.encodings) <= {"PLAIN", "RLE"}
    )


def plain_values(chunk: bytes, kind: np.dtype, count: int) -> np.ndarray | None:
    """Return the `count` numbers of a column's bytes as float32, None where pyarrow must read them.

    Lists are required, of one length and without nulls: the caller knows from the schema.
    """
    found, end = np.empty(count, np.float32), 0
    try:
        for values in _pages(chunk, kind):
            found[end : end + len(values)] = values
            end += len(values)
    except (ValueError, LookupError, TypeError, RecursionError):  # another page, or a damaged one
        return None
    return found if end == count else None


def _pages(chunk: bytes, kind: np.dtype) -> Iterator[np.ndarray]:
    place, view = 0, memoryview(chunk)
    while place < len(chunk):
        header, place = _struct(chunk, place)
        data, size = header[DATA], header[SIZE]
        if header[TYPE] != DATA_PAGE or data[ENCODING] != PLAIN or size <= 0:
            raise ValueError("another kind of page")
        page, place = view[place : place + size], place + size
        if CHECKSUM in header and zlib.crc32(page) != header[CHECKSUM] % 2**32:
            raise ValueError("the checksum is wrong")
        for _ in ("repetition levels", "definition levels"):
            page = page[4 + int.from_bytes(page[:4], "little") :]
        if len(page) != data[COUNT] * kind.itemsize:
            raise ValueError("nulls or empty lists")
        yield np.frombuffer(page, kind)


def _struct(data: bytes, place: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a Thrift struct of numbers and structs, and where it ends."""
    fields: dict[int, Any] = {}
    name = 0
    while data[place]:
        name, kind = name + (data[place] >> 4), data[place] & 15
        if kind not in (NUMBER, STRUCT):
            raise ValueError("another kind of field")
        fields[name], place = (_struct if kind == STRUCT else _number)(data, place + 1)
    return fields, place + 1


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, its sign last, and where it ends."""
    found = shift = 0
    while data[place] & 128 and shift < 64:
        found |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    found |= data[place] << shift
    return (found >> 1) ^ -(found & 1), place + 1
