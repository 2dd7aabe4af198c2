"""Groups that the user supplies: the same surgeon, the same kitchen."""

from __future__ import annotations

from pathlib import Path

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

SURGEONS = """take,participant
cholec80/video01,ann
cholec80/video02,ann
cholec80/video03,bob
cholec80/video41,ann"""


def config(**values: object) -> DataConfig:
    archive = {"source": "archive", "archive": {"set": "cholec80"}, "groups": "surgeons.csv"}
    return DataConfig.model_validate({**archive, **values})


def grouped(root: Path, text: str) -> Source:
    (root / "pjepa_features/surgeons.csv").write_text(text)
    return open_source(config(), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_archive(tmp_path, "cholec80")
    return tmp_path


def test_the_same_surgeon_is_a_group(root: Path) -> None:
    found = grouped(root, SURGEONS)
    groups = {take["take_id"].split("/")[1]: take["group"] for take in found.takes}
    assert [groups[f"video{n:02d}"] for n in (1, 2, 3, 41)] == ["ann", "ann", "bob", "ann"]
    assert groups["video10"] == "cholec80/video10"
    assert found.takes[0]["participant"] == "ann"
    assert "has no row for 6 takes" in " ".join(note.line() for note in found.notes)
    files = [entry["path"] for entry in scan(config(), root)["files"]]
    assert "surgeons.csv" in files  # so that DVC notices another grouping
    params = Params.model_validate({"data": config(), "pjepa": {"segments": "fixed"}})
    leaks = [f for f in check_source(found, params)[1] if "groups in" in f.text]
    assert [f.line() for f in leaks] == ["warning: 1 groups in test and in train: ann (3 takes)"]


def test_a_group_overrules_the_participant_and_a_recording_names_its_takes(tmp_path: Path) -> None:
    write_archive(tmp_path, "assembly101")
    (tmp_path / "pjepa_features/toys.csv").write_text("take,group,participant\nrec0,red,ann")
    found = open_source(config(archive={"set": "assembly101"}, groups="toys.csv"), tmp_path)
    mine = [take for take in found.takes if take["recording"] == "rec0"]
    assert [(take["group"], take["participant"]) for take in mine] == [("red", "ann")] * 2


def test_own_videos_are_grouped_before_splits_are_drawn(tmp_path: Path) -> None:
    for name in "abcd":
        write_video(tmp_path / f"videos/{name}.mp4", ("cut",), 1.0)
    rows = [f"{name},0,1,cut" for name in "abcd"]
    (tmp_path / "videos/labels.csv").write_text("\n".join(["video,start,end,label", *rows]))
    (tmp_path / "videos/who.csv").write_text("take,group\na,1\nb,1\nc,2\nd,2")
    found = open_source(DataConfig(source="folder", groups="who.csv"), tmp_path)
    splits = {take["take_id"]: take["split"] for take in found.takes}
    assert splits["a"] == splits["b"] != splits["c"] == splits["d"]


FAULTS = {
    "take,participant\ncholec80/vide01,ann": r"line 2: no take or recording 'cholec80/vide01'; did",
    "take,participant\ncholec80/video01,": r"line 2: expected a take and its group",
    f"{SURGEONS}\ncholec80/video01,bob": r"line 6: 'cholec80/video01' appears twice \(also",
    "take,surgeon\ncholec80/video01,ann": r"line 1: expected one of the columns group, participant",
    "participant\nann": r"line 1: .*no column take",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_name_file_and_line(root: Path, text: str) -> None:
    with pytest.raises(InputError, match=FAULTS[text]):
        grouped(root, text)


def test_the_file_must_be_there_and_inside(root: Path) -> None:
    with pytest.raises(InputError, match=r"surgeons.csv: no such file; data.groups names it"):
        open_source(config(), root)
    with pytest.raises(InputError, match=r"a path inside the source's folder"):
        open_source(config(groups="../surgeons.csv"), root)
    with pytest.raises(ValueError, match=r"the demo has groups of its own"):
        DataConfig(groups="x.csv")
