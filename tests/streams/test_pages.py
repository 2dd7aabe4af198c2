"""Features are read past pyarrow; what comes back is what pyarrow reads."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.streams.pages import is_plain, plain_values
from pjepa.streams.provenance import feature_type

WIDTH = 5
OURS = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
}


def written(path, dtype, rows=60, **options):
    """Return what pyarrow reads of a column of lists, and what one reads past it."""
    values = np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(dtype)
    column = pa.FixedSizeListArray.from_arrays(values.reshape(-1), type=feature_type(WIDTH, dtype))
    schema = pa.schema([pa.field("feature", column.type, nullable=False)])
    pq.write_table(pa.Table.from_arrays([column], schema=schema), path, **{**OURS, **options})
    return values.astype(np.float32).reshape(-1), past_pyarrow(path, dtype)


def chunk_of(path):
    column = pq.read_metadata(path).row_group(0).column(0)
    first = column.data_page_offset
    return column, path.read_bytes()[first : first + column.total_compressed_size]


def past_pyarrow(path, dtype):
    column, chunk = chunk_of(path)
    return plain_values(chunk, np.dtype(dtype), column.num_values) if is_plain(column) else None


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("page", [16, 200, 2**20])  # many pages, several lists a page, one page
@pytest.mark.parametrize("checksum", [True, False])  # the latter: streams written before
def test_numbers_are_those_of_the_file(tmp_path, dtype, page, checksum):
    options = {"data_page_size": page, "write_batch_size": 8, "write_page_checksum": checksum}
    stored, found = written(tmp_path / "s.parquet", dtype, **options)
    np.testing.assert_array_equal(found, stored)


@pytest.mark.parametrize(
    "other",
    [
        {"compression": "zstd"},
        {"use_dictionary": True},
        {"write_statistics": True},
        {"data_page_version": "2.0"},
        {"column_encoding": "BYTE_STREAM_SPLIT"},
    ],
)
def test_other_pages_are_left_to_pyarrow(tmp_path, other):
    assert written(tmp_path / "s.parquet", "float16", **other)[1] is None


def test_nulls_are_left_to_pyarrow(tmp_path):
    column = pa.array([[1.0, 2.0], [None, 3.0]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"feature": column}), tmp_path / "s.parquet", **OURS)
    assert past_pyarrow(tmp_path / "s.parquet", "float32") is None


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_read(tmp_path_factory, place, bit):
    path = tmp_path_factory.getbasetemp() / "pages.parquet"
    if not path.exists():
        written(path, "float16", data_page_size=100, write_batch_size=8)
    column, chunk = chunk_of(path)
    expected = plain_values(chunk, np.dtype("float16"), column.num_values)
    damaged = bytearray(chunk)
    damaged[place % len(chunk)] ^= 1 << bit
    found = plain_values(bytes(damaged), np.dtype("float16"), column.num_values)
    # A bit of a header that says nothing about the numbers may go unnoticed.
    assert found is None or np.array_equal(found, expected)


@given(chunk=st.binary(max_size=300))
def test_no_bytes_are_too_strange(chunk):
    found = plain_values(chunk, np.dtype("float16"), 10)
    assert found is None or found.shape == (10,)


@pytest.mark.parametrize("chunk", [b"\x1c" * 10**5, b"\x15" + b"\xff" * 10**5])
def test_endless_headers_end(chunk):
    assert plain_values(chunk, np.dtype("float16"), 10) is None
