"""MS-TCN's folders and EgoProceL as FACT packages it, with the quirks of the real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.shipped import read_shipped, shipped_shape
from pjepa.takes.source import Source
from pjepa.takes.sources.egoprocel import take_of_video
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import scan
from pjepa.tokens.materialise import picked_rows
from pjepa.ui.console import InputError
from tests.worlds.bundles import CLASSES, GTEA, frame_labels, write_bundle, write_egoprocel


def source(root: Path, name: str = "mstcn", **values: object) -> Source:
    return open_source(DataConfig.model_validate({"source": name, **values}), root)


@pytest.fixture
def gtea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    write_bundle(tmp_path / "gtea")
    return tmp_path


GTEA_SET = {"mstcn": {"dataset": "gtea"}}


def test_a_bundle_is_read_as_it_is(gtea: Path) -> None:
    found = source(gtea, **GTEA_SET)
    assert [row.take_id for row in found.videos] == [*GTEA]
    assert found.classes.names == CLASSES
    assert found.classes.background == 3
    splits = {take["take_id"]: take["split"] for take in found.takes}
    assert [name for name, split in splits.items() if split == "test"] == [*GTEA[-2:]]
    assert found.takes[0]["participant"] == "S1"
    assert found.takes[0]["task"] == "Cheese"
    row = found.videos[0]
    assert (row.fps, row.duration_s, row.root) == (15.0, 160 / 15, "data")
    assert shipped_shape(row) == (160, 8)  # cut to the labels
    shipped = read_shipped(row)
    np.testing.assert_array_equal(shipped.features[np.array([0, 159])][:, 0], [0, 159])
    assert isinstance(shipped.features, np.memmap)
    mine = [s for s in found.segments if s.take_id == GTEA[0]]
    rebuilt = [CLASSES[s.label] for s in mine for _ in range(round((s.end_s - s.start_s) * 15))]
    assert rebuilt == frame_labels(0, 160)


def test_folds_choose_the_bundle_and_breakfasts_begin_with_a_word(gtea: Path) -> None:
    second = source(gtea, fold=2, **GTEA_SET)
    assert [t["take_id"] for t in second.takes if t["split"] == "test"] == [*GTEA[:2]]
    plain = source(gtea, **GTEA_SET)
    for path in (gtea / "gtea/splits").iterdir():
        path.write_text(f"#bundle\n{path.read_text()}")
    assert source(gtea, **GTEA_SET) == plain
    path.write_text(f"{path.read_text()}\n\nx")
    with pytest.raises(InputError, match=rf"{path.name}, line \d+: an empty line"):
        source(gtea, fold=int(path.name.split(".split")[1][0]), **GTEA_SET)


def test_the_archive_unpacks_to_data(gtea: Path) -> None:
    """MS-TCN's data.zip as it is: `data/gtea`, unpacked into the root."""
    plain = source(gtea, **GTEA_SET)
    (gtea / "data").mkdir()
    (gtea / "gtea").rename(gtea / "data/gtea")
    found = source(gtea, **GTEA_SET)
    assert found.segments == plain.segments
    assert found.videos[0].features == "npy-dt:data/gtea/features/S1_Cheese_C1.npy#0:160"
    config = DataConfig.model_validate({"source": "mstcn", "groups": "who.csv", **GTEA_SET})
    (gtea / "who.csv").write_text("take,group\nS1_Cheese_C1,elsewhere")
    (gtea / "data/gtea/who.csv").write_text("take,group\nS1_Cheese_C1,here")
    assert open_source(config, gtea).takes[0]["group"] == "here"  # the set's own folder first
    listed = {entry["path"] for entry in scan(config, gtea)["files"]}
    assert {"data/gtea/who.csv", "data/gtea/mapping.txt"} <= listed
    assert "who.csv" not in listed
    (gtea / "data/gtea/who.csv").unlink()
    assert open_source(config, gtea).takes[0]["group"] == "elsewhere"
    with pytest.raises(InputError, match=r"neither 50salads nor data/50salads .*data.mstcn.path"):
        source(gtea)


def test_people_of_50salads_and_breakfast_are_groups(tmp_path: Path) -> None:
    write_bundle(tmp_path / "50salads", [f"rgb-0{k}-{n}" for k in (1, 2) for n in (1, 2)])
    found = source(tmp_path, mstcn={"dataset": "50salads"})
    assert [take["group"] for take in found.takes] == ["01", "01", "02", "02"]
    assert {take["view"] for take in found.takes} == {"top"}
    assert found.features is not None
    assert found.features.lookahead_s == pytest.approx(10 / 30)
    names = ["P03_cam01_P03_cereals", "P03_stereo01_P03_cereals", "P04_webcam02_P04_milk"] * 1
    write_bundle(tmp_path / "breakfast", names)
    found = source(tmp_path, mstcn={"dataset": "breakfast"})
    rows = {take["take_id"]: take for take in found.takes}
    one, two = rows[names[0]], rows[names[1]]
    assert one["recording"] == two["recording"] == "P03_cereals"
    assert (one["view"], two["view"], one["task"]) == ("cam01", "stereo01", "cereals")
    assert one["group"] == "P03"


def test_a_custom_set_says_what_its_files_do_not(tmp_path: Path) -> None:
    write_bundle(tmp_path / "mine", ["a", "b"], time_first=True, suffix="")
    with pytest.raises(InputError, match=r"'mine' is not one of .*set data.mstcn.fps"):
        source(tmp_path, mstcn={"dataset": "mine"})
    with pytest.raises(InputError, match=r"set data.mstcn.lookahead_s"):
        source(tmp_path, mstcn={"dataset": "mine", "fps": 10.0})
    found = source(tmp_path, mstcn={"dataset": "mine", "fps": 10.0, "lookahead_s": 0.0})
    assert [row.features for row in found.videos] == [
        f"npy:mine/features/{name}.npy#0:160" for name in ("a", "b")
    ]


# EgoProceL


@pytest.fixture
def egoprocel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    write_egoprocel(tmp_path / "egoprocel")
    return tmp_path


def test_egoprocel_is_read_as_fact_packages_it(egoprocel: Path) -> None:
    found = source(egoprocel, "egoprocel")
    takes = {take["take_id"]: take for take in found.takes}
    assert found.classes.background == 0
    assert "crack the eggs" in found.classes.names
    cameras = [t for t in found.takes if t["dataset"] == "CMU-MMAC"]
    assert len(cameras) == 5
    assert {t["group"] for t in cameras} == {"S07_Brownie"}
    assert {t["view"] for t in cameras} == {"ego", "back", "top", "right", "left-top"}
    assert {t["participant"] for t in cameras} == {"S07"}
    egtea = takes["OP01-R01-PastaSalad"]
    assert (egtea["dataset"], egtea["participant"], egtea["task"]) == (
        "EGTEA", "OP01", "PastaSalad"
    )  # fmt: skip
    assert takes["04.tent.120617.gopro"]["participant"] == "04"
    assert takes["0003"]["dataset"] == "MECCANO"
    assert [takes[name]["task"] for name in ("Head_11", "Head_6")] == ["assembly", "disassembly"]
    assert takes["Head_6"]["dataset"] == "PC"
    other = take_of_video("S10_Eggs_7150996-1110", "train")
    assert (other["view"], other["recording"]) == ("ego", "S10_Eggs")
    assert {t["split"] for t in found.takes} == {"train", "test"}
    assert "10 per second: the extractor's" in found.notes[-1].line()
    with pytest.raises(InputError, match=r"tokens.fps 12 asks for more; set tokens.fps=10"):
        picked_rows(found.videos[0], 12.0)


def test_the_rate_is_measured_against_annotations_in_seconds(egoprocel: Path) -> None:
    write_egoprocel(egoprocel / "egoprocel", annotations_fps=15.0)
    found = source(egoprocel, "egoprocel")
    assert {row.fps for row in found.videos} == {15.0}
    folder = egoprocel / "egoprocel/annotations"
    (folder / "pc_assembly/Head_11.csv").rename(folder / "pc_disassembly/Head_11.csv")
    tasks = {take["take_id"]: take["task"] for take in source(egoprocel, "egoprocel").takes}
    assert tasks["Head_11"] == "disassembly"  # the folder knows better than the number
    fixed = source(egoprocel, "egoprocel", egoprocel={"fps": 12.0})
    assert {row.fps for row in fixed.videos} == {12.0}
