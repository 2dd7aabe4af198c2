"""Own videos with a label per frame, split bundles, and folds by group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import scan
from pjepa.ui.console import InputError
from tests.worlds.own_videos import write_video

FPS, PEOPLE = 8, "abcdef"


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for name in PEOPLE:
        write_video(folder / f"{name}.mp4", ("cut", "stir"), 1.0, FPS)
    return folder


@pytest.fixture
def root(tmp_path: Path, films: Path) -> Path:
    """MS-TCN's layout with videos in place of features."""
    mine = tmp_path / "mine"
    (mine / "groundTruth").mkdir(parents=True)
    (mine / "splits").mkdir()
    for name in PEOPLE:
        (mine / f"{name}.mp4").symlink_to(films / f"{name}.mp4")
        text = "\n".join(["SIL"] * FPS + ["pour in"] * FPS)
        (mine / f"groundTruth/{name}.txt").write_text(text)
    (mine / "mapping.txt").write_text("0 SIL\n1 stir\n2 pour in")
    for fold, test in ((1, "ef"), (2, "ab")):
        train = "".join(name for name in PEOPLE if name not in test)
        for split, part in (("train", train), ("test", test)):
            lines = "\n".join(f"{name}.txt" for name in part)
            (mine / f"splits/{split}.split{fold}.bundle").write_text(f"#bundle\n{lines}\n")
    return tmp_path


def config(fold: int = 1, seed: int = 0, **own: object) -> DataConfig:
    folder = {"path": "mine", "labels": "groundTruth", **own}
    return DataConfig.model_validate(
        {"source": "folder", "fold": fold, "seed": seed, "folder": folder}
    )


def in_test(found: Source) -> set[str]:
    return {take["take_id"] for take in found.takes if take["split"] == "test"}


def test_a_label_per_frame(root: Path) -> None:
    found = open_source(config(background="SIL"), root)
    assert found.classes.names == ("SIL", "stir", "pour in")  # the mapping's order
    assert found.classes.background == 0
    mine = [(s.start_s, s.end_s, s.label) for s in found.segments if s.take_id == "a"]
    assert mine == [(0.0, 1.0, 0), (1.0, 2.0, 2)]
    listed = {entry["path"] for entry in scan(config(), root)["files"]}
    assert {"groundTruth/a.txt", "mapping.txt", "splits/test.split2.bundle", "a.mp4"} <= listed
    (root / "mine/README.txt").write_text("no label")
    assert "README.txt" not in {entry["path"] for entry in scan(config(), root)["files"]}
    assert open_source(config(labels="."), root).segments == found.segments


def test_labels_at_another_rate_are_noticed(root: Path) -> None:
    truth = root / "mine/groundTruth/b.txt"
    truth.write_text("SIL\n" * 4 * FPS)
    with pytest.raises(InputError, match=r"b.txt, line 1: 32 labels for 2.00 s at 8 .*\(here 16\)"):
        open_source(config(), root)
    for name in PEOPLE:
        (root / f"mine/groundTruth/{name}.txt").write_text("SIL\n" * 4 * FPS)
    found = open_source(config(frame_rate=16), root)
    assert {(s.start_s, s.end_s) for s in found.segments} == {(0.0, 2.0)}
    for text, message in {
        "SIL\nstirr": r"b.txt, line 2: no class 'stirr' in mapping.txt; did you mean 'stir'",
        "SIL\n\nSIL": r"b.txt, line 2: an empty line",
        "": r"b.txt: no label",
    }.items():
        truth.write_text(text)
        with pytest.raises(InputError, match=message):
            open_source(config(frame_rate=16), root)


def test_bundles_give_the_splits(root: Path) -> None:
    assert in_test(open_source(config(splits="splits"), root)) == {"e", "f"}
    assert in_test(open_source(config(2, splits="splits"), root)) == {"a", "b"}
    with pytest.raises(InputError, match=r"train.split3.bundle: no such file; data.fold 3 of"):
        open_source(config(3, splits="splits"), root)
    bundle = root / "mine/splits/test.split1.bundle"
    bundle.write_text("e\nzz")
    with pytest.raises(InputError, match=r"test.split1.bundle: no video 'zz'"):
        open_source(config(splits="splits"), root)
    write_video(root / "mine/deep/a.mp4", ("cut",))
    bundle.write_text("e\na")
    with pytest.raises(InputError, match=r"train.split1.bundle: 'a' stands for a, deep/a"):
        open_source(config(labels=None, splits="splits"), root)
    (root / "mine/deep/a.mp4").unlink()
    bundle.write_text("e\na")
    with pytest.raises(InputError, match=r"'a' is in train and in test of fold 1"):
        open_source(config(splits="splits"), root)


def people(root: Path) -> None:
    """Three people with two films each."""
    rows = [f"{name},p{k // 2}" for k, name in enumerate(PEOPLE)]
    (root / "mine/who.csv").write_text("\n".join(["take,participant", *rows]))


def grouped(root: Path, fold: int, folds: Any, **values: Any) -> Source:
    changed = config(fold, folds=folds, **values).model_copy(update={"groups": "who.csv"})
    return open_source(changed, root)


def test_folds_test_every_group_once(root: Path) -> None:
    people(root)
    folds = [in_test(grouped(root, fold, 2)) for fold in (1, 2)]
    assert folds[0] | folds[1] == set(PEOPLE)
    assert not folds[0] & folds[1]
    for pair in ({"a", "b"}, {"c", "d"}, {"e", "f"}):  # nobody is on both sides
        assert pair <= folds[0] or pair <= folds[1]
    assert in_test(grouped(root, 1, 2)) == folds[0]  # seeded
    assert "fold 1 of 2 by group" in grouped(root, 1, 2).notes[-1].line()
    left_out = [in_test(grouped(root, fold, "groups")) for fold in (1, 2, 3)]
    assert left_out == [{"a", "b"}, {"c", "d"}, {"e", "f"}]
    found = grouped(root, 1, "groups", val=0.5)
    assert {take["split"] for take in found.takes} == {"train", "val", "test"}
    assert in_test(found) == {"a", "b"}


def test_folds_that_cannot_be(root: Path) -> None:
    people(root)
    with pytest.raises(InputError, match=r"data.fold 4: there are 3 folds"):
        grouped(root, 4, "groups")
    with pytest.raises(InputError, match=r"data.folder.folds 5: 3 groups among the labelled"):
        grouped(root, 1, 5)
    with pytest.raises(ValueError, match=r"fold 2: source folder has one split.*data.folder.folds"):
        config(2)
    with pytest.raises(ValueError, match="splits and folds"):
        config(folds=2, splits="splits")
    with pytest.raises(ValueError, match="folds"):
        config(folds=1)
    rows = "\n".join(f"{name},0,1,cut,{'test' if name > 'c' else 'train'}" for name in PEOPLE)
    (root / "mine/labels.csv").write_text(f"video,start,end,label,split\n{rows}")
    with pytest.raises(InputError, match=r"take a: split train, but data.folder.folds assigns"):
        grouped(root, 1, 2, labels="labels.csv")
