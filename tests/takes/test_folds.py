"""Own videos with a label per frame, split bundles, folds by group, and groups of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import scan
from pjepa.tools.check import check_source
from pjepa.tools.params import Params
from pjepa.ui.console import InputError
from tests.worlds.archives import write_archive
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
    for text, message in {
        "SIL\n" * 4 * FPS: r"b.txt, line 1: 32 labels for 2.00 s at 8 .*\(here 16\)",
        "SIL\nstirr": r"b.txt, line 2: no class 'stirr' in mapping.txt; did you mean 'stir'",
        "SIL\n\nSIL": r"b.txt, line 2: an empty line",
        "": r"b.txt: no label",
    }.items():
        (root / "mine/groundTruth/b.txt").write_text(text)
        with pytest.raises(InputError, match=message):
            open_source(config(), root)
    for name in PEOPLE:
        (root / f"mine/groundTruth/{name}.txt").write_text("SIL\n" * 4 * FPS)
    found = open_source(config(frame_rate=16), root)
    assert {(s.start_s, s.end_s) for s in found.segments} == {(0.0, 2.0)}


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


# Groups that the user supplies: the same surgeon, the same kitchen.

SURGEONS = """take,participant
cholec80/video01,ann
cholec80/video02,ann
cholec80/video03,bob
cholec80/video41,ann"""


def surgeons(**values: object) -> DataConfig:
    archive = {"source": "archive", "archive": {"set": "cholec80"}, "groups": "surgeons.csv"}
    return DataConfig.model_validate({**archive, **values})


def operated(root: Path, text: str) -> Source:
    (root / "pjepa_features/surgeons.csv").write_text(text)
    return open_source(surgeons(), root)


@pytest.fixture
def cholec(tmp_path: Path) -> Path:
    write_archive(tmp_path, "cholec80")
    return tmp_path


def test_the_same_surgeon_is_a_group(cholec: Path) -> None:
    found = operated(cholec, SURGEONS)
    groups = {take["take_id"].split("/")[1]: take["group"] for take in found.takes}
    assert [groups[f"video{n:02d}"] for n in (1, 2, 3, 41)] == ["ann", "ann", "bob", "ann"]
    assert groups["video10"] == "cholec80/video10"
    assert found.takes[0]["participant"] == "ann"
    assert "has no row for 6 takes" in " ".join(note.line() for note in found.notes)
    files = [entry["path"] for entry in scan(surgeons(), cholec)["files"]]
    assert "surgeons.csv" in files  # so that DVC notices another grouping
    params = Params.model_validate({"data": surgeons(), "pjepa": {"segments": "fixed"}})
    leaks = [f for f in check_source(found, params)[1] if "groups in" in f.text]
    assert [f.line() for f in leaks] == ["warning: 1 groups in test and in train: ann (3 takes)"]


def test_a_group_overrules_the_participant_and_a_recording_names_its_takes(tmp_path: Path) -> None:
    write_archive(tmp_path, "assembly101")
    (tmp_path / "pjepa_features/toys.csv").write_text("take,group,participant\nrec0,red,ann")
    found = open_source(surgeons(archive={"set": "assembly101"}, groups="toys.csv"), tmp_path)
    mine = [take for take in found.takes if take["recording"] == "rec0"]
    assert [(take["group"], take["participant"]) for take in mine] == [("red", "ann")] * 2


def test_own_videos_are_grouped_before_splits_are_drawn(root: Path) -> None:
    people(root)
    rows = "\n".join(f"{name},0,1,cut" for name in PEOPLE)
    (root / "mine/labels.csv").write_text(f"video,start,end,label\n{rows}")
    changed = config(labels="labels.csv").model_copy(update={"groups": "who.csv"})
    splits = {take["take_id"]: take["split"] for take in open_source(changed, root).takes}
    assert all(splits[one] == splits[other] for one, other in ("ab", "cd", "ef"))
    assert set(splits.values()) == {"train", "test"}


FAULTS = {
    "take,participant\ncholec80/vide01,ann": r"line 2: no take or recording 'cholec80/vide01'; did",
    "take,participant\ncholec80/video01,": r"line 2: expected a take and its group",
    f"{SURGEONS}\ncholec80/video01,bob": r"line 6: 'cholec80/video01' appears twice \(also",
    "take,surgeon\ncholec80/video01,ann": r"line 1: expected one of the columns group, participant",
    "participant\nann": r"line 1: .*no column take",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_of_groups_name_file_and_line(cholec: Path, text: str) -> None:
    with pytest.raises(InputError, match=FAULTS[text]):
        operated(cholec, text)


def test_the_file_of_groups_must_be_there_and_inside(cholec: Path) -> None:
    with pytest.raises(InputError, match=r"surgeons.csv: no such file; data.groups names it"):
        open_source(surgeons(), cholec)
    with pytest.raises(InputError, match=r"a path inside the source's folder"):
        open_source(surgeons(groups="../surgeons.csv"), cholec)
    with pytest.raises(ValueError, match=r"the demo has groups of its own"):
        DataConfig(groups="x.csv")
