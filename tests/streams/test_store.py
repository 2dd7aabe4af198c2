import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.errors import InputError
from pjepa.streams.materialise import token_labels
from pjepa.streams.schema import Provenance, StreamInfo
from pjepa.streams.segments import attention_segments, runs, token_offsets
from pjepa.streams.store import StreamReader, StreamWriter, Take, read_labels, write_labels

INFO = StreamInfo(source="test", fps=4.0, width=3, provenance=Provenance(lookahead_s=2.0))


def take(name, count, seed=0):
    rng = np.random.default_rng(seed)
    segment = np.sort(rng.integers(-1, 4, count)).astype(np.int32)
    return Take(
        name,
        rng.normal(size=(count, 3)).astype(np.float32),
        np.arange(count) / 4,
        segment,
        token_offsets(segment),
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_takes_come_back_one_row_group_each(tmp_path, dtype):
    takes = [take("b", 7, 1), take("a", 1, 2), take("späte Aufnahme/1", 12, 3)]
    path = tmp_path / "stream.parquet"
    with StreamWriter(path, INFO, dtype) as writer:
        for item in takes:
            writer.write(item)
    reader = StreamReader(path)
    assert reader.takes == ["b", "a", "späte Aufnahme/1"]
    assert reader.lengths == [7, 1, 12]
    assert (reader.info, reader.dtype) == (INFO, dtype)
    assert pq.ParquetFile(path).num_row_groups == 3
    for item in takes:
        found = reader.read(item.take_id)
        expected = item.features.astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(found.features, expected)
        for name in ("times", "segment", "offset"):
            np.testing.assert_array_equal(getattr(found, name), getattr(item, name))
            np.testing.assert_array_equal(
                getattr(reader.read_layout(item.take_id), name), getattr(item, name)
            )


def test_bytes_are_the_same_every_time_and_schema_is_the_contract(tmp_path):
    for name in ("one", "two"):
        with StreamWriter(tmp_path / name, INFO) as writer:
            writer.write(take("x", 50))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    schema = pq.read_schema(tmp_path / "one")
    assert schema.names == ["take_id", "time_s", "segment", "offset", "feature"]
    assert str(schema.field("feature").type).startswith("fixed_size_list<")
    assert json.loads(schema.metadata[b"pjepa"])["provenance"]["lookahead_s"] == 2.0


def test_bad_features_are_named_and_leave_no_file(tmp_path):
    broken = take("bad take", 4)
    broken.features[2, 1] = np.nan
    with (
        pytest.raises(InputError, match=r"bad take.*not finite"),
        StreamWriter(tmp_path / "s.parquet", INFO) as writer,
    ):
        writer.write(broken)
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(InputError, match=r"expected \(4, 3\)"),
        StreamWriter(tmp_path / "s.parquet", INFO) as writer,
    ):
        writer.write(take("narrow", 4).with_features(np.zeros((4, 2), np.float32)))


def test_missing_streams_and_takes_are_named(tmp_path):
    with pytest.raises(InputError, match="no such stream"):
        StreamReader(tmp_path / "none.parquet")
    with StreamWriter(tmp_path / "s.parquet", INFO) as writer:
        writer.write(take("x", 3))
    with pytest.raises(InputError, match="no take 'y'"):
        StreamReader(tmp_path / "s.parquet").read("y")
    write_labels(tmp_path / "labels.parquet", [("x", np.arange(3) / 4, np.array([0, -1, 2]))])
    with pytest.raises(InputError, match="not a token stream"):
        StreamReader(tmp_path / "labels.parquet")
    assert read_labels(tmp_path / "labels.parquet")["x"].tolist() == [0, -1, 2]


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=60))
def test_coordinates_count_along_the_take(ids):
    segment = np.array(ids)
    along, offset = attention_segments(segment), token_offsets(segment)
    assert along[0] == 0
    assert set(np.diff(along)) <= {0, 1}
    starts, lengths = runs(along)
    assert lengths.sum() == len(ids)
    for start, length in zip(starts, lengths, strict=True):
        assert len(set(segment[start : start + length])) == 1
        assert offset[start : start + length].tolist() == list(range(length))


def test_tokens_outside_any_segment_are_unknown():
    assert token_labels(np.array([-1, 0, 0, 1, -1]), np.array([7, 9])).tolist() == [-1, 7, 7, 9, -1]
