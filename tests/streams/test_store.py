import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.runs import attention_segments, runs, token_offsets
from pjepa.storage.reading import content_sha256
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take, read_labels, write_labels
from pjepa.ui.console import InputError
from tests.storage.flip import flip

INFO = StreamInfo(source="test", fps=4.0, width=3, provenance=Provenance(lookahead_s=2.0))


def take(name, count, seed=0):
    rng = np.random.default_rng(seed)
    segment = np.sort(rng.integers(-1, 4, count)).astype(np.int32)
    features = rng.normal(size=(count, 3)).astype(np.float32)
    return Take(name, features, np.arange(count) / 4, segment, token_offsets(segment))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_takes_come_back_one_row_group_each(tmp_path, dtype):
    takes = [take("b", 7, 1), take("a", 1, 2), take("späte Aufnahme/1", 12, 3)]
    for path in (tmp_path / "stream.parquet", tmp_path / "again.parquet"):
        with StreamWriter(path, INFO, dtype) as writer:
            for item in takes:
                writer.write(item)
    assert path.read_bytes() == (tmp_path / "stream.parquet").read_bytes()
    schema = pq.read_schema(path)
    assert schema.names == ["take_id", "time_s", "segment", "offset", "feature"]
    assert str(schema.field("feature").type).startswith("fixed_size_list<")
    assert json.loads(schema.metadata[b"pjepa"])["provenance"]["lookahead_s"] == 2.0
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


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.nan, "float16", "feature is nan at 0.5 s, channel 1; check the features"),
        (-np.inf, "float32", "feature is -inf at 0.5 s, channel 1;"),
        (-70000, "float16", "-70000 at 0.5 s, channel 1 does not fit float16; set the stage's"),
    ],
)
def test_numbers_that_cannot_be_stored_are_named_and_leave_no_file(tmp_path, value, dtype, message):
    broken, narrow = take("bad take", 4), take("a", 4).with_features(np.zeros((4, 2), np.float32))
    broken.features[2, 1] = value
    for bad, said in ((broken, f"take bad take: .*{message}"), (narrow, r"expected \(4, 3\)")):
        with (
            pytest.raises(InputError, match=said),
            StreamWriter(tmp_path / "s.parquet", INFO, dtype) as writer,
        ):
            writer.write(bad)
        assert list(tmp_path.iterdir()) == []


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


def write_parts(path, takes, part_bytes):
    with StreamWriter(path, INFO, "float32", part_bytes) as writer:
        for item in takes:
            writer.write(item)


def test_a_long_stream_becomes_a_folder_of_parts_read_the_same_way(tmp_path):
    takes = [take("long", 60, 1), *(take(f"short {n}", 6, n) for n in range(9))]
    write_parts(tmp_path / "whole.parquet", takes, 10**9)
    write_parts(tmp_path / "parts.parquet", takes, 300)  # 12 bytes a token
    parts = sorted((tmp_path / "parts.parquet").iterdir())
    assert [path.name for path in parts] == [f"part-0000{n}.parquet" for n in range(4)]
    rows = [pq.ParquetFile(part).metadata.num_rows for part in parts]
    assert rows == [60, 24, 24, 6]  # over the limit is a take that is so alone
    whole, split = (StreamReader(tmp_path / f"{n}.parquet") for n in ("whole", "parts"))
    assert (split.takes, split.lengths, split.info) == (whole.takes, whole.lengths, whole.info)
    for name in reversed(whole.takes):
        np.testing.assert_array_equal(split.read(name).features, whole.read(name).features)
        np.testing.assert_array_equal(split.read_layout(name).times, whole.read(name).times)


def test_a_stream_replaces_what_stood_under_its_name_file_or_folder(tmp_path):
    path, takes = tmp_path / "s.parquet", [take(f"t{n}", 9, n) for n in range(4)]
    for part_bytes in (10**9, 120, 10**9, 120):
        write_parts(path, takes, part_bytes)
        assert StreamReader(path).takes == ["t0", "t1", "t2", "t3"]
        assert path.is_dir() == (part_bytes == 120)
    takes[3].features[:] = np.inf  # in a later part
    with pytest.raises(InputError, match=r"t3: feature is inf at"):
        write_parts(path, takes, 120)
    assert StreamReader(path).takes == ["t0", "t1", "t2", "t3"]
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_parts_of_two_streams_and_takes_met_twice_are_refused(tmp_path):
    path = tmp_path / "s.parquet"
    write_parts(path, [take(f"t{n}", 9, n) for n in range(3)], 120)
    (path / "part-00001.parquet").write_bytes((path / "part-00000.parquet").read_bytes())
    with pytest.raises(InputError, match=r"part-00001.*'t0' appears twice"):
        StreamReader(path)
    with StreamWriter(tmp_path / "other.parquet", INFO.model_copy(update={"fps": 8.0})) as writer:
        writer.write(take("z", 3))
    (tmp_path / "other.parquet").replace(path / "part-00001.parquet")
    with pytest.raises(InputError, match=r"part-00001.*another stream"):
        StreamReader(path)
    (path / "part-00001.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(InputError, match=r"part-00001.*not a whole Parquet file"):
        StreamReader(path)
    for part in path.iterdir():
        part.unlink()
    with pytest.raises(InputError, match="without parts"):
        StreamReader(path)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_takes_decoded_in_parallel_come_back_in_order_and_few_ahead(tmp_path, threads):
    takes = [take(f"t{n:02d}", 3 + n % 5, n) for n in range(23)]
    write_parts(tmp_path / "s.parquet", takes, 500)
    reader = StreamReader(tmp_path / "s.parquet")
    found = list(reader.read_many(threads=threads))
    assert [item.take_id for item in found] == reader.takes
    for item, expected in zip(found, takes, strict=True):
        np.testing.assert_array_equal(item.features, expected.features)
    chosen = ["t09", "t02", "t09"]
    assert [item.take_id for item in reader.read_many(chosen, threads)] == chosen
    with pytest.raises(InputError, match="no take 'nobody'"):
        list(reader.read_many(["t00", "nobody"], threads))
    asked, read = [], reader.read
    reader.read = lambda take_id: asked.append(take_id) or read(take_id)
    many = reader.read_many(threads=threads)
    next(many)
    many.close()
    assert len(asked) <= threads + 1


def test_labels_of_many_takes_keep_their_order(tmp_path):
    rng = np.random.default_rng(0)
    labels = [(f"t{n % 7}{n}", np.arange(n % 4) / 4, rng.integers(-1, 5, n % 4)) for n in range(50)]
    write_labels(tmp_path / "labels.parquet", iter(labels))
    found = read_labels(tmp_path / "labels.parquet")
    with_tokens = {name: label for name, _, label in labels if len(label)}
    assert list(found) == list(with_tokens)
    for name, label in with_tokens.items():
        np.testing.assert_array_equal(found[name], label)
        assert found[name].dtype == np.int32


def test_the_hash_of_a_stream_covers_every_part(tmp_path):
    path = tmp_path / "s.parquet"
    write_parts(path, [take(f"t{n}", 9, n) for n in range(4)], 120)
    hashes = [content_sha256(path)]
    (path / "part-00002.parquet").rename(path / "part-00009.parquet")
    hashes.append(content_sha256(path))
    (path / "part-00009.parquet").write_bytes(b"other")
    assert len({*hashes, content_sha256(path)}) == 3


def test_a_stream_that_another_tool_compressed_is_read(tmp_path):
    path, item = tmp_path / "s.parquet", take("a", 40)
    write_parts(path, [item], None)
    pq.write_table(pq.read_table(path), path, compression="zstd", use_dictionary=False)
    found = StreamReader(path).read("a").features
    np.testing.assert_array_equal(found, item.features)


def test_a_flipped_bit_is_found_by_who_reads_it(tmp_path):
    path = tmp_path / "stream.parquet"
    write_parts(path, [take("a", 40), take("b", 40, 1)], None)
    stored = take("b", 40, 1).features.astype(np.float32).tobytes()
    flip(path, path.read_bytes().index(stored[:64]) + 7)
    reader = StreamReader(path)
    reader.read("a")
    with pytest.raises(InputError, match=r"stream.parquet: take b is damaged on the disk"):
        reader.read("b")


def test_a_stream_opens_as_a_hugging_face_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    path, one = tmp_path / "stream.parquet", take("a", 7)
    with StreamWriter(path, INFO, "float32") as writer:
        writer.write(one)
    loaded = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    ).with_format("numpy")
    np.testing.assert_array_equal(loaded["feature"][:], one.features)
    np.testing.assert_array_equal(loaded["time_s"][:], one.times)


def test_devices_of_every_step_are_recorded_once() -> None:
    info = INFO.with_device("cuda").with_device("cpu").with_device("cuda")
    assert info.provenance.devices == ("cpu", "cuda")
    assert json.loads(info.metadata()[b"pjepa"])["provenance"]["devices"] == ["cpu", "cuda"]
