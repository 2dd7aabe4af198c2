"""The authors' archives; what their own loader returns is in tests/golden/pjepa/fake_archives."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pjepa.core.tables import VideoRow, read_takes
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.takes.config import DataConfig
from pjepa.takes.shipped import read_packed, read_shipped
from pjepa.takes.sources.archive import ARCHIVES
from pjepa.takes.sources.registry import open_source
from pjepa.tools import paths
from pjepa.ui.console import InputError
from tests.pipeline.in_process import project, run_stages

GOLDEN = Path(__file__).parents[1] / "golden/pjepa/fake_archives"
EGO, TSM, LEMON = ARCHIVES["egoprocel_fact"], ARCHIVES["assembly101"], ARCHIVES["lemon"]
SEGMENTS = str(EGO.segments)
PUBLIC = {  # where a file of the golden folder is in the public archives
    EGO.features: "packed_frames.pt",
    SEGMENTS: "egoprocel_style_segments.csv",
    TSM.features: "assembly101_packed.pt",
    str(TSM.segments): "assembly101_style_segments.csv",
    ARCHIVES["cholec80"].features: "surgical_phase.pt",
    ARCHIVES["m2cai16"].features: "surgical_phase.pt",
    LEMON.features: "lemon/index.pt",
    f"{Path(LEMON.features).parent}/pretrain/pretrain_00000.pt": "lemon/pretrain/pretrain_00000.pt",
}
TAKES = ["takes", "patches", "pooler", "tokens"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data root of its own with the archives in it."""
    for name, golden in PUBLIC.items():
        file = tmp_path / "root/pjepa_features" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDEN / golden, file)
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def source(root, name, missing="fail", **own):
    values = {"source": "archive", "missing": missing, "archive": {"set": name, **own}}
    return open_source(DataConfig.model_validate(values), root)


def batches(case):
    """{name: tensor} of one case of the loader's batches."""
    found = load_file(GOLDEN / "expected_batches.safetensors")
    return {key.removeprefix(case): value for key, value in found.items() if key.startswith(case)}


@pytest.mark.parametrize(
    ("own", "fps", "case", "takes"),
    [
        ({}, 4.0, "nocap.train.", ["vidA.pt", "vidB.pt"]),
        ({}, 4.0, "nocap.test.", ["vidC.pt"]),
        ({"background_cap": 4}, 4.0, "bgcap4.train.", ["vidA.pt", "vidB.pt"]),
        ({"background_cap": 4}, 4.0, "bgcap4.test.", ["vidC.pt"]),
        (
            {"set": "assembly101"}, 3.75, "a101.train.",
            ["assembly/rec1/C10119_rgb", "disassembly/rec1/C10119_rgb"],
        ),
    ],
)  # fmt: skip
def test_sequences_are_the_loaders(root, tmp_path, monkeypatch, own, fps, case, takes):
    """Gaps dropped, overlaps repeated, empty segments given the nearest token, background cut."""
    values = {
        "data": {"source": "archive", "archive": {"set": "egoprocel_fact", **own}},
        "patches": {"fps": 2 * fps},
        "tokens": {"fps": fps, "dtype": "float32", "gaps": "drop", "overlap": "duplicate"},
    }
    project(tmp_path / "project", monkeypatch, values, root)
    run_stages(TAKES)
    stream, labels, expected = StreamReader(paths.STREAM), read_labels(paths.LABELS), batches(case)
    for row, take_id in enumerate(takes):
        take, valid = stream.read(take_id), expected["valid"][row]
        torch.testing.assert_close(
            torch.from_numpy(take.features), expected["x"][row][valid], rtol=0, atol=0
        )
        assert labels[take_id].tolist() == expected["y"][row][valid].tolist()
        lengths = [int(n) for n in expected["segment_lengths"][row] if n]
        assert np.bincount(take.segment).tolist() == lengths
    split = case.split(".")[1]
    table = read_takes(paths.TAKES_TABLE)
    assert sorted(table.loc[table["split"] == split, "take_id"]) == sorted(takes)


def test_take_keys_groups_and_splits(root):
    found = source(root, "assembly101")
    both = {row["take_id"]: row for row in found.takes}
    assert {row["group"] for row in both.values()} == {"rec1"}  # one recording, two takes
    assert [row["task"] for row in both.values()] == ["assembly", "disassembly"]
    assert {row["view"] for row in both.values()} == {"C10119_rgb"}
    assert found.classes.background is None
    assert len(found.classes.names) == 5
    official = source(root, "egoprocel_fact")
    release = source(root, "egoprocel_fact", protocol="release")
    assert [row["split"] for row in official.takes] == ["train", "train", "test"]
    assert [row["split"] for row in release.takes] == ["train", "train", "val"]
    assert official.classes.background == 0
    assert official.classes.names == ("l0", "l1", "l2", "l3")
    starts = {segment.start_s for segment in official.segments}
    assert starts == {float(np.float32(start)) for start in starts}  # as the loader compares


@pytest.mark.parametrize("name", ["cholec80", "m2cai16"])
def test_surgical_phases_are_inline(root, name):
    found = source(root, name)
    assert [row["split"] for row in found.takes] == ["train", "test"]
    assert found.classes.names == ("a", "b", "c")
    packed = torch.load(GOLDEN / "surgical_phase.pt", weights_only=True)
    for number, row in enumerate(found.videos):
        mine = [s for s in found.segments if s.take_id == row.take_id]
        first, stop = packed["offsets"][number : number + 2].tolist()
        labels = [
            next((s.label for s in mine if s.start_s <= time < s.end_s), -1)
            for time in read_shipped(row).times_s
        ]
        assert labels == packed["phase_labels"][first:stop].tolist()
    change(root, "cholec80", video_ids=["video33", "video80"])
    for protocol, expected in (("official", "train"), ("release", "val")):
        takes = source(root, "cholec80", protocol=protocol).takes
        assert [row["split"] for row in takes] == [expected, "test"]


def test_lemon_is_shards_to_pretrain_on_and_cholec80_beside_them(root, tmp_path, monkeypatch):
    values = {
        "data": {"source": "archive", "archive": {"set": "lemon"}},
        "patches": {"fps": 2.0},
        "tokens": {"fps": 1.0, "dtype": "float32"},
    }
    project(tmp_path / "project", monkeypatch, values, root)
    said = run_stages(TAKES)
    assert "2 lemon videos to pretrain on, labels from cholec80" in said
    listed = json.loads(paths.source_list("archive").read_text())["files"]
    folder = Path(LEMON.features).parent
    assert [entry["path"] for entry in listed] == [
        ARCHIVES["cholec80"].features, LEMON.features, f"{folder}/pretrain/pretrain_00000.pt",
    ]  # fmt: skip
    table = read_takes(paths.TAKES_TABLE).set_index("take_id")["split"]
    assert table["lemon/a"] == table["lemon/b"] == "pretrain"
    shard = torch.load(GOLDEN / "lemon/pretrain/pretrain_00000.pt", weights_only=True)
    first, stop = shard["offsets"][1:3].tolist()
    found = StreamReader(paths.STREAM).read("lemon/b")
    np.testing.assert_array_equal(found.features, shard["tokens"][first:stop:4])  # 4 fps -> 1 fps


def test_rows_without_features_are_refused_or_listed(root):
    path = root / "pjepa_features" / SEGMENTS
    path.write_text(path.read_text() + "x,gone,gone.mp4,T,train,1,l1,0.0,1.0,0\n")
    with pytest.raises(InputError, match=r"1 takes .*no features in the archive.*gone\.pt"):
        source(root, "egoprocel_fact")
    found = source(root, "egoprocel_fact", missing="skip")
    assert found.skipped == {"no features in the archive": ["gone.pt"]}
    assert len(found.takes) == 3


# What is refused: segment lists by their line, archives by their key.


def change(root, name, **values):
    """Changes keys of an archive; functions are given the archive."""
    path = root / "pjepa_features" / ARCHIVES[name].features
    content = torch.load(path, weights_only=True)
    new = {key: v(content) if callable(v) else v for key, v in values.items()}
    torch.save({**content, **new}, path)


LINES = [
    ("fact_step_id", "step", "no column fact_step_id"),
    (",train,0,l0,0.000000,", ",training,0,l0,0.000000,", r"line 2: official_split.*training"),
    ("2.500000,4.000000", "soon,4.000000", r"line 3: start_sec: expected seconds"),
    ("2.500000,4.000000", "2.500000,1.0", r"line 3: end_sec 1 is before start_sec 2.5"),
    ("2.500000,4.000000", "2.500000,inf", r"line 3: end_sec inf is before start_sec 2.5"),
    (",train,3,l3", ",train,three,l3", r"line 3: fact_step_id: expected a class id"),
    (",train,3,l3", ",train,99999999999,l3", r"line 3: .*up to 99999"),
    (",train,3,l3", ",train,3,l3,1,2,3,4,5,6", r"line 3: more cells than"),
    (",train,3,", ",test,3,", r"take vidA.pt: in splits test, train"),
]


@pytest.mark.parametrize(("old", "new", "message"), LINES)
def test_a_bad_segment_list_names_its_line(root, old, new, message):
    path = root / "pjepa_features" / SEGMENTS
    text = path.read_text().rstrip("\n")  # a missing final newline is no fault
    path.write_text(text)
    assert source(root, "egoprocel_fact").takes
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        source(root, "egoprocel_fact")


def emptied(content):
    return torch.cat([content["offsets"], content["offsets"][-1:]])


KEYS = [
    ("egoprocel_fact", {"tokens": torch.zeros(70)}, r"tokens: expected a 2-D tensor, found \[70\]"),
    ("egoprocel_fact", {"tokens": torch.zeros(70, 6).long()}, "tokens: expected torch.float32"),
    ("egoprocel_fact", {"tokens": torch.zeros(6, 70)}, "offsets: expected 0 rising to 6 tokens"),
    ("egoprocel_fact", {"times": None}, "times: expected a 1-D tensor, found NoneType"),
    ("egoprocel_fact", {"times": torch.zeros(70)}, "times: 'vidA.pt', row 1: expected rising"),
    ("egoprocel_fact", {"times": torch.zeros(70).bfloat16()}, "row 1: expected rising"),
    ("egoprocel_fact", {"times": torch.arange(69.0)}, "times: expected 70"),
    ("egoprocel_fact", {"offsets": torch.tensor([0, 70])}, "offsets: expected 4, found 2"),
    ("egoprocel_fact", {"offsets": torch.tensor([0, 30, 48, 99])}, "offsets: expected 0 rising"),
    ("egoprocel_fact", {"paths": ["a", "b", "a"]}, "paths: 'a' appears twice"),
    ("egoprocel_fact", {"paths": "vidA.pt"}, "paths: expected a list of names, found str"),
    (
        "m2cai16",
        {"offsets": emptied, "video_ids": ["a", "b", "c"], "source_splits": ["train"] * 3},
        r"1 takes with no token in the archive \(m2cai16/c\)",
    ),
    ("m2cai16", {"source_splits": ["train", "tset"]}, "source_splits: .* found 'tset'"),
    ("cholec80", {"phase_class_names": ["a", "a", "b"]}, "a name appears twice"),
    ("cholec80", {"video_ids": ["video33", "video81"]}, "video_ids.*'video81'"),
    ("lemon", {"shards": ["../../../secret.pt"]}, "not out of it"),
    ("lemon", {"shards": ["none.pt"]}, "shards: 1 are not there"),
    ("lemon", {"shard_ids": torch.tensor([0, 7])}, r"index.pt: shard_ids: 'b' in shard 7 of 1"),
    ("lemon", {"shard_ids": torch.rand(2)}, "shard_ids: expected 2 whole numbers"),
    ("lemon", {"target_fps": "4x"}, "target_fps: expected a number"),
    ("lemon", {"num_tokens": torch.zeros(2, dtype=torch.int64)}, "'a' has none"),
]


@pytest.mark.parametrize(("name", "values", "message"), KEYS)
def test_a_bad_archive_names_its_key(root, name, values, message):
    change(root, name, **values)
    with pytest.raises(InputError, match=message):
        source(root, name)


def test_code_in_an_archive_is_not_run_and_a_cut_file_is_named(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"paths": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match="not a torch file that loads safely"):
        read_packed(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()
    whole = (GOLDEN / "packed_frames.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut.pt: not a torch file"):
        read_packed(tmp_path / "cut.pt")
    with pytest.raises(InputError, match="no such archive"):
        read_packed(tmp_path / "none.pt")


def test_reading_a_take_maps_the_archive_and_lets_it_go(root):
    """The map of the archive is gone after a read, so pages of many takes do not pile up."""
    row = VideoRow("vidB.pt", None, 4.0, 5.0, f"pt:pjepa_features/{EGO.features}#1", "data")
    shipped = read_shipped(row)
    assert shipped.features.shape == (18, 6)
    shipped.features[np.arange(18)]
    assert Path(EGO.features).name not in Path("/proc/self/maps").read_text()
    with pytest.raises(InputError, match="video '3', expected 0 to 2"):
        read_shipped(VideoRow("x", None, 4.0, 1.0, f"pt:pjepa_features/{EGO.features}#3", "data"))
