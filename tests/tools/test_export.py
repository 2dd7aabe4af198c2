"""Exports, read back by the rules of the tools they are for (facts: datasets, ltcontext, fact)."""

import csv
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from pjepa.core.runs import token_offsets
from pjepa.core.tables import TAKES, Classes, write_classes, write_table
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take, write_labels
from pjepa.takes.config import DataConfig, EgoProceLConfig, MstcnConfig
from pjepa.takes.shipped import read_shipped
from pjepa.takes.sources.registry import open_source
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.export import class_names, exported_takes, file_stem, write_export
from pjepa.ui.console import InputError

CLASSES = Classes(("background", "cut bread", "pour"), 0)
SPLITS = dict(
    zip(
        ["kitchen/1", "S1.take", "späte Aufnahme", "v", "new"],
        ["train", "train", "test", "val", "pretrain"],
        strict=True,
    )
)


def project(folder, split=SPLITS):
    """A project with one representation of five takes; one has gaps, one no label at all."""
    rng = np.random.default_rng(0)
    takes, labels = {}, []
    path = folder / paths.representation("pjepa") / "stream.parquet"
    with StreamWriter(path, StreamInfo(source="test", fps=4.0, width=3), "float32") as writer:
        for number, name in enumerate(split):
            count = 6 + number
            segment = np.repeat([-1, 0, 1], [1, 2, count - 3])
            takes[name] = Take(
                name,
                rng.normal(size=(count, 3)).astype(np.float32),
                np.arange(count) / 4,
                segment,
                token_offsets(segment),
            )
            label = np.full(count, -1) if name == "new" else np.append(segment[1:] + 1, 1)
            if name == "kitchen/1":
                label[2] = -1
            writer.write(takes[name])
            labels.append((name, takes[name].times, label))
    write_labels(folder / paths.LABELS, labels)
    rows = [
        {"take_id": name, "dataset": "d", "split": part, "holdout": False, "task": "disassembly",
         "recording": name, "participant": "", "view": "ego/1", "group": name}
        for name, part in split.items()
    ]  # fmt: skip
    write_table(folder / paths.TAKES_TABLE, rows, TAKES)
    write_classes(folder / paths.CLASSES, CLASSES)
    return takes, {name: label for name, _, label in labels}


def run(folder, monkeypatch, *arguments):
    monkeypatch.chdir(folder)
    return CliRunner().invoke(app, ["export", *arguments])


def lines(path):
    """As MS-TCN and FACT read: split at newlines, the last piece dropped."""
    return path.read_text().split("\n")[:-1]


def test_mstcn_and_asformer_read_the_folder_as_it_is(tmp_path, monkeypatch):
    takes, labels = project(tmp_path)
    done = run(tmp_path, monkeypatch, "--layout", "mstcn")
    assert done.exit_code == 0, done.output
    base = tmp_path / "exports/mstcn-pjepa"
    ids = {line.split()[1]: int(line.split()[0]) for line in lines(base / "mapping.txt")}
    assert ids == {"background": 0, "cut_bread": 1, "pour": 2}
    bundles = {"train": ["kitchen/1", "S1.take"], "test": ["späte Aufnahme"], "val": ["v"]}
    for split, expected in bundles.items():
        videos = lines(base / "splits" / f"{split}.split1.bundle")
        assert len(videos) == len(expected)
        for video, name in zip(videos, expected, strict=True):
            features = np.load(base / "features" / (video.split(".")[0] + ".npy"))
            truth = [ids[line] for line in lines(base / "groundTruth" / video)]
            keep = labels[name] >= 0
            np.testing.assert_array_equal(features, takes[name].features[keep].T)
            assert truth == labels[name][keep].tolist()
    assert "1 tokens without a label were left out" in done.output
    listed = {row["take_id"]: row for row in csv.DictReader((base / "takes.csv").open())}
    assert (listed["kitchen/1"]["tokens"], listed["kitchen/1"]["left_out"]) == ("5", "1")
    assert (base / "features" / "new.npy").is_file()  # no label: features only, in no list
    assert json.loads((base / "export.json").read_text())["fps"] == 4.0


def test_unlabelled_tokens_can_be_a_class_of_their_own(tmp_path, monkeypatch):
    takes, labels = project(tmp_path)
    done = run(tmp_path, monkeypatch, "--layout", "npy", "--unlabelled", "class", "--out", "all")
    assert done.exit_code == 0, done.output
    base = tmp_path / "all"
    assert json.loads((base / "classes.json").read_text())["names"][-1] == "unlabelled"
    for name, take in takes.items():
        np.testing.assert_array_equal(
            np.load(base / "features" / f"{file_stem(name)}.npy"), take.features
        )
        np.testing.assert_array_equal(
            np.load(base / "times" / f"{file_stem(name)}.npy"), take.times
        )
    known = np.load(base / "labels" / f"{file_stem('kitchen/1')}.npy")
    assert known.tolist() == np.where(labels["kitchen/1"] < 0, 3, labels["kitchen/1"]).tolist()
    assert not (base / "labels" / "new.npy").exists()


def test_fact_reads_it_as_egoprocel_and_as_a_custom_set(tmp_path, monkeypatch):
    takes, labels = project(tmp_path)
    assert run(tmp_path, monkeypatch, "--layout", "fact", "--out", "f").exit_code == 0
    base = tmp_path / "f"
    ids = {
        line.split(" ", 1)[1]: int(line.split(" ", 1)[0]) for line in lines(base / "mapping.txt")
    }
    assert ids["cut bread"] == 1
    assert lines(base / "split1.train") == [file_stem("kitchen/1"), file_stem("S1.take")]
    bundle = [n.removesuffix(".txt") for n in lines(base / "splits/train.split1.bundle")]
    assert bundle == lines(base / "split1.train")
    for video, name in zip(lines(base / "split1.test"), ["späte Aufnahme"], strict=True):
        np.testing.assert_array_equal(
            np.load(base / "features" / f"{video}.npy"), takes[name].features
        )
        truth = [ids[line] for line in lines(base / "groundTruth" / f"{video}.txt")]
        assert truth == labels[name].tolist()
    settings = yaml.safe_load((base / "fact.yaml").read_text())
    assert settings["feature_transpose"] is False
    assert settings["bg_class"] == [0]
    counts = [len(np.flatnonzero(np.diff(labels[n][labels[n] >= 0]))) + 1
              for n in ("kitchen/1", "S1.take")]  # fmt: skip
    assert settings["average_transcript_len"] == np.mean(counts)
    assert settings["ntoken"] == int(1.5 * max(counts))


def test_ltcontext_reads_its_assembly101_folder(tmp_path, monkeypatch):
    takes, labels = project(tmp_path)
    assert run(tmp_path, monkeypatch, "--layout", "ltcontext", "--out", "l").exit_code == 0
    base = tmp_path / "l"
    actions = pd.read_csv(base / "coarse-annotations/actions.csv")
    ids = dict(zip(actions["action_cls"], actions["action_id"], strict=True))
    rows = pd.read_csv(base / "val.csv", index_col=0)
    assert rows["view"].tolist() == ["ego_1"]
    for row in rows.itertuples():
        segments = [
            line.split("\t")
            for line in (base / "coarse-annotations/coarse_labels")
            .joinpath(f"{row.action_type}_{row.video_id}.txt").read_text().strip("\n").split("\n")
        ]  # fmt: skip
        spans = [(int(s[0]), int(s[1]), ids[s[2]]) for s in segments]
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        start, end = spans[0][0], min(spans[-1][1], row.video_end_frame)
        file = base / "TSM_features" / row.video_id / row.view / "features.npy"
        features = np.load(file, mmap_mode="r")[:, start:end]
        np.testing.assert_array_equal(features.T, takes["späte Aufnahme"].features)
        framewise = np.concatenate([[label] * (stop - first) for first, stop, label in spans])
        assert framewise.tolist() == labels["späte Aufnahme"].tolist()
    splits = base / "coarse-annotations/coarse_splits"
    listed = lines(splits / "train_coarse_disassembly.txt")
    assert [line.split("\t")[0] for line in listed] == [
        f"disassembly_{file_stem(name)}.txt" for name in ("kitchen/1", "S1.take")
    ]
    assert lines(splits / "train_coarse_assembly.txt") == []


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "a\nb", ".", "..", "x" * 300])
def test_names_from_data_never_leave_the_folder(tmp_path, name):
    if len(name) > 200:
        with pytest.raises(InputError, match="take id"):
            file_stem(name)
        return
    stem = file_stem(name)
    assert (tmp_path / f"{stem}.npy").resolve().parent == tmp_path.resolve()
    assert "\n" not in stem
    assert "." not in stem


def test_class_names_that_a_layout_cannot_tell_apart_are_refused():
    with pytest.raises(InputError, match=r"class 1 'a_b'.*rename"):
        class_names(Classes(("a b", "a_b"), None), "drop", spaces=False)
    assert class_names(Classes(("a b", "a_b"), None), "drop", spaces=True) == ["a b", "a_b"]
    assert class_names(Classes(("a\nb",), None), "drop", spaces=True) == ["a b"]


def test_only_an_export_is_replaced_and_a_failure_leaves_the_old_one(tmp_path, monkeypatch):
    project(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("dear to me")
    done = run(tmp_path, monkeypatch, "--layout", "npy", "--out", "mine")
    assert done.exit_code == 1
    assert "is not an export" in done.output
    assert (tmp_path / "mine/thesis.txt").read_text() == "dear to me"
    for layout in ("npy", "fact", "fact"):
        assert run(tmp_path, monkeypatch, "--layout", layout, "--out", "e").exit_code == 0
    assert not (tmp_path / "e/times").exists()

    def broken():
        yield from ()
        raise InputError("the disk is gone")

    info = StreamInfo(source="", fps=1, width=1)
    with pytest.raises(InputError, match="disk"):
        write_export(tmp_path / "e", "npy", broken(), info, CLASSES, "drop")
    assert (tmp_path / "e/split1.train").is_file()


def test_bad_requests_end_in_one_line(tmp_path, monkeypatch):
    project(tmp_path)
    done = run(tmp_path, monkeypatch, "--layout", "npy", "--representation", "../../pjepa")
    assert done.exit_code == 1
    assert "there: pjepa" in done.output
    write_labels(tmp_path / paths.LABELS, [("v", np.arange(2) / 4, np.array([0, 1]))])
    done = run(tmp_path, monkeypatch, "--layout", "npy")
    assert "take v: 2 labels for 9 tokens" in done.output


def test_a_take_that_no_table_knows_is_named(tmp_path):
    project(tmp_path)
    stream = StreamReader(tmp_path / paths.representation("pjepa") / "stream.parquet")
    table = pd.DataFrame({"take_id": ["v"], "split": ["val"]})
    with pytest.raises(InputError, match=r"'kitchen/1' is not in takes\.parquet"):
        next(exported_takes(stream, {}, table, CLASSES, "drop"))


@pytest.mark.parametrize("layout", ["mstcn", "fact"])
def test_an_export_read_back_as_a_source_is_the_same(tmp_path, monkeypatch, layout):
    """Features, labels and splits survive the way out and the way in."""
    takes, labels = project(tmp_path)
    assert run(tmp_path, monkeypatch, "--layout", layout, "--out", "root/kitchen").exit_code == 0
    if layout == "mstcn":
        own = MstcnConfig(dataset="kitchen", fps=4.0, time_first=False, lookahead_s=0.0)
        config = DataConfig(source="mstcn", mstcn=own)
    else:
        own = EgoProceLConfig(path="kitchen", fps=4.0)
        config = DataConfig(source="egoprocel", egoprocel=own)
    found = open_source(config, tmp_path / "root")
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path / "root"))
    names = {file_stem(name): name for name in takes}
    splits = {names[row["take_id"]]: row["split"] for row in found.takes}
    assert splits == {"kitchen/1": "train", "S1.take": "train", "späte Aufnahme": "test"}
    assert found.classes.background == 0
    for row in found.videos:
        name = names[row.take_id]
        keep = labels[name] >= 0
        shipped = read_shipped(row)
        rows = shipped.features[np.arange(keep.sum())]
        np.testing.assert_array_equal(rows, takes[name].features[keep])
        spans = [s for s in found.segments if s.take_id == row.take_id]
        read = [next(s.label for s in spans if s.start_s <= t < s.end_s) for t in shipped.times_s]
        assert read == labels[name][keep].tolist()
