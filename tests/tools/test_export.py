"""Exports, read back by the rules of the tools they are for (facts: datasets, ltcontext, fact)."""

import csv
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from pjepa.core.tables import Classes
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, write_labels
from pjepa.takes.config import DataConfig
from pjepa.takes.shipped import read_shipped
from pjepa.takes.sources.registry import open_source
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.export import class_names, exported_takes, file_stem, write_export
from pjepa.ui.console import InputError
from tests.worlds.represented import CLASSES, write_represented

TRAIN = [file_stem("kitchen/1"), file_stem("S1.take")]
TEST = [file_stem("späte Aufnahme")]


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_represented(tmp_path)


def export(layout, *arguments):
    done = CliRunner().invoke(app, ["export", "--layout", layout, "--out", "e", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def lines(path):
    """As MS-TCN and FACT read: split at newlines, the last piece dropped."""
    return path.read_text().split("\n")[:-1]


def test_unlabelled_tokens_can_be_a_class_of_their_own(tmp_path, world):
    takes, labels = world
    export("npy", "--unlabelled", "class")
    assert json.loads((tmp_path / "e/classes.json").read_text())["names"][-1] == "unlabelled"
    for name, take in takes.items():
        for kind, expected in (("features", take.features), ("times", take.times)):
            array = np.load(tmp_path / "e" / kind / f"{file_stem(name)}.npy")
            np.testing.assert_array_equal(array, expected)
    written = np.load(tmp_path / "e/labels" / f"{file_stem('kitchen/1')}.npy")
    assert written.tolist() == np.where(labels["kitchen/1"] < 0, 3, labels["kitchen/1"]).tolist()
    assert not (tmp_path / "e/labels/new.npy").exists()


def test_fact_has_the_keys_of_a_custom_set(tmp_path, world):
    _, labels = world
    export("fact")
    assert lines(tmp_path / "e/split1.train") == TRAIN
    assert lines(tmp_path / "e/split1.test") == TEST
    settings = yaml.safe_load((tmp_path / "e/fact.yaml").read_text())
    known = [labels[name][labels[name] >= 0] for name in ("kitchen/1", "S1.take")]
    counts = [np.count_nonzero(np.diff(each)) + 1 for each in known]
    assert (settings["feature_transpose"], settings["bg_class"]) == (False, [0])
    assert settings["average_transcript_len"] == np.mean(counts)
    assert settings["ntoken"] == int(1.5 * max(counts))


def test_ltcontext_reads_its_assembly101_folder(tmp_path, world):
    takes, labels = world
    export("ltcontext")
    coarse = tmp_path / "e/coarse-annotations"
    actions = pd.read_csv(coarse / "actions.csv")
    ids = dict(zip(actions["action_cls"], actions["action_id"], strict=True))
    (row,) = pd.read_csv(tmp_path / "e/val.csv", index_col=0).itertuples()
    assert row.view == "ego_1"
    segments = lines(coarse / "coarse_labels" / f"{row.action_type}_{row.video_id}.txt")
    spans = [(int(s[0]), int(s[1]), ids[s[2]]) for s in (line.split("\t") for line in segments)]
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    start, end = spans[0][0], min(spans[-1][1], row.video_end_frame)
    file = tmp_path / "e/TSM_features" / row.video_id / row.view / "features.npy"
    features = np.load(file, mmap_mode="r")[:, start:end]
    np.testing.assert_array_equal(features.T, takes["späte Aufnahme"].features)
    framewise = np.concatenate([[label] * (stop - first) for first, stop, label in spans])
    assert framewise.tolist() == labels["späte Aufnahme"].tolist()
    listed = lines(coarse / "coarse_splits/train_coarse_disassembly.txt")
    assert [line.split("\t")[0] for line in listed] == [f"disassembly_{name}.txt" for name in TRAIN]
    assert lines(coarse / "coarse_splits/train_coarse_assembly.txt") == []


@pytest.mark.parametrize("layout", ["mstcn", "fact"])
def test_an_export_read_back_as_a_source_is_the_same(tmp_path, monkeypatch, world, layout):
    """Features, labels and splits survive the way out and the way in."""
    takes, labels = world
    assert "1 tokens without a label were left out" in export(layout)
    own = {
        "mstcn": {"dataset": "e", "fps": 4.0, "time_first": False, "lookahead_s": 0.0},
        "egoprocel": {"path": "e", "fps": 4.0},
    }
    name = "egoprocel" if layout == "fact" else "mstcn"
    source = open_source(DataConfig.model_validate({"source": name, **own}), tmp_path)
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    base = tmp_path / "e"
    mapping = [line.split(maxsplit=1)[1] for line in lines(base / "mapping.txt")]
    assert mapping == ["background", "cut bread" if layout == "fact" else "cut_bread", "pour"]
    names = {file_stem(name): name for name in takes}
    splits = {row["take_id"]: row["split"] for row in source.takes}
    assert splits == {**dict.fromkeys(TRAIN, "train"), TEST[0]: "test"}
    assert source.classes.background == 0
    for row in source.videos:
        keep = labels[names[row.take_id]] >= 0
        shipped = read_shipped(row)
        rows = shipped.features[np.arange(keep.sum())]
        np.testing.assert_array_equal(rows, takes[names[row.take_id]].features[keep])
        spans = [s for s in source.segments if s.take_id == row.take_id]
        read = [next(s.label for s in spans if s.start_s <= t < s.end_s) for t in shipped.times_s]
        assert read == labels[names[row.take_id]][keep].tolist()
        shape = np.load(base / "features" / f"{row.take_id}.npy").shape
        assert shape == ((keep.sum(), 3) if layout == "fact" else (3, keep.sum()))
        assert len(lines(base / "groundTruth" / f"{row.take_id}.txt")) == keep.sum()
    for split, expected in {"train": TRAIN, "test": TEST, "val": ["v"]}.items():
        videos = lines(base / "splits" / f"{split}.split1.bundle")
        assert videos == [f"{name}.txt" for name in expected]
    listed = {row["take_id"]: row for row in csv.DictReader((base / "takes.csv").open())}
    assert (listed["kitchen/1"]["tokens"], listed["kitchen/1"]["left_out"]) == ("5", "1")
    assert (base / "features" / "new.npy").is_file()  # no label: features only, in no list
    assert json.loads((base / "export.json").read_text())["fps"] == 4.0


def test_names_from_data_never_leave_the_folder_nor_their_line(tmp_path):
    for name in ("../../evil", "/etc/passwd", "a\nb", ".", ".."):
        stem = file_stem(name)
        assert (tmp_path / f"{stem}.npy").resolve().parent == tmp_path.resolve()
        assert not {"\n", "."} & set(stem)
    assert class_names(Classes(("a b", "a_b"), None), "drop", spaces=True) == ["a b", "a_b"]
    assert class_names(Classes(("a\nb",), None), "drop", spaces=True) == ["a b"]


def test_only_an_export_is_replaced_and_a_failure_leaves_the_old_one(tmp_path, world):
    for layout in ("npy", "fact", "fact"):
        export(layout)
    assert not (tmp_path / "e/times").exists()

    def broken():
        yield from ()
        raise InputError("the disk is gone")

    info = StreamInfo(source="", fps=1, width=1)
    with pytest.raises(InputError, match="disk"):
        write_export(tmp_path / "e", "npy", broken(), info, CLASSES, "drop")
    assert (tmp_path / "e/split1.train").is_file()


def test_what_cannot_be_exported_is_named(tmp_path, world):
    stream = StreamReader(tmp_path / paths.representation("pjepa") / "stream.parquet")
    table = pd.DataFrame({"take_id": ["v"], "split": ["val"]})
    with pytest.raises(InputError, match=r"'kitchen/1' is not in takes\.parquet"):
        next(exported_takes(stream, {}, table, CLASSES, "drop"))
    with pytest.raises(InputError, match="take id"):
        file_stem("x" * 300)
    with pytest.raises(InputError, match=r"class 1 'a_b' has the same name .*rename"):
        class_names(Classes(("a b", "a_b"), None), "drop", spaces=False)
    write_labels(tmp_path / paths.LABELS, [("v", np.arange(2) / 4, np.array([0, 1]))])
    for words, error in (
        (["--representation", "../../pjepa"], "there: pjepa"),
        ([], "take v: 2 labels for 9 tokens"),
    ):
        done = CliRunner().invoke(app, ["export", "--layout", "npy", *words])
        assert (done.exit_code, error in done.output) == (1, True)
