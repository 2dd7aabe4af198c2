"""Own videos: takes, splits and groups; test_labels.py has the label files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError
from tests.video.corpus import FPS as FILM_FPS
from tests.video.corpus import Film, write_film
from tests.worlds.own_videos import PLANS, write_own_videos

HEAD = "video,start,end,label"
RATE = 8.0  # of write_video


def source(root: Path, labels: str | None = "labels.csv", **values: object) -> Source:
    own = {"path": "mine", "labels": labels, "frame_rate": RATE, **values}
    return open_source(DataConfig.model_validate({"source": "folder", "folder": own}), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_own_videos(tmp_path / "mine")
    return tmp_path


def spans(found: Source, take: str = "x") -> list[tuple[float, float, str]]:
    names = found.classes.names
    return [(s.start_s, s.end_s, names[s.label]) for s in found.segments if s.take_id == take]


def test_csv_of_four_videos(root: Path) -> None:
    found = source(root)
    assert [row.video for row in found.videos] == [f"mine/{name}" for name in sorted(PLANS)]
    assert found.classes.names == ("cut", "stir", "wait")
    assert found.classes.background is None
    assert spans(found, "a b") == [(0, 2, "cut"), (2, 4, "stir"), (4, 6, "wait")]
    assert [t["split"] for t in found.takes].count("test") == 1
    assert source(root).takes == found.takes  # the draw is seeded
    assert source(root, background="wait").classes.background == 2


def test_unlabelled_videos_are_kept_for_pretraining(root: Path) -> None:
    labels = root / "mine/labels.csv"
    labels.write_text("\n".join(labels.read_text().splitlines()[:-3]))  # nothing about e.mkv
    found = source(root)
    assert {t["take_id"]: t["split"] for t in found.takes}["e"] == "pretrain"
    assert "1 takes without labels: split pretrain" in [note.line() for note in found.notes]
    shutil.copy(root / "mine/d.mp4", root / "mine/d.avi")
    nothing = source(root, None)
    assert [row.take_id for row in nothing.videos] == ["a b", "d.avi", "d.mp4", "deep/c", "e"]
    assert {t["split"] for t in nothing.takes} == {"pretrain"}
    assert nothing.classes.names == ()


def test_rows_name_split_group_and_people(root: Path) -> None:
    lines = [f"{HEAD},split,participant,task,view"]
    for k, name in enumerate(PLANS):
        split = "test" if k == 3 else "train"
        lines += [f"{name},0,2,cut,{split},p{k // 2},soup,top", f"{name},2,4,stir,,,,"]
    (root / "mine/labels.csv").write_text("\n".join(lines))
    takes = source(root).takes
    assert [t["split"] for t in takes] == ["train", "train", "train", "test"]
    assert [t["group"] for t in takes] == ["p0", "p1", "p0", "p1"]
    assert takes[0]["task"] == "soup"


def test_a_pause_is_kept_up_to_max_gap(tmp_path: Path) -> None:
    stamps = tuple(k + (20 * FILM_FPS if k >= 40 else 0) for k in range(72))
    write_film(Film("pause.mp4", "libx264", stamps=stamps), tmp_path / "mine")
    (short,) = source(tmp_path, None).videos
    config = {"source": "folder", "max_gap_s": 60, "folder": {"path": "mine", "labels": None}}
    (long,) = open_source(DataConfig.model_validate(config), tmp_path).videos
    assert long.duration_s == pytest.approx(short.duration_s + 20, abs=0.5)


def test_a_folder_without_a_video(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=r"no video in it; set data.folder.path and the data"):
        source(tmp_path)


def test_unreadable_videos_are_listed(root: Path) -> None:
    (root / "mine/bad.mp4").write_text("no video")
    (root / "mine/.hidden.mp4").write_text("not looked at")
    with pytest.raises(InputError, match=r"1 takes with no readable video .*bad.mp4.*=skip"):
        source(root)
    own = {"path": "mine"}
    config = DataConfig.model_validate({"source": "folder", "folder": own, "missing": "skip"})
    found = open_source(config, root)
    assert len(found.videos) == 4
    assert "bad.mp4" in found.skipped["no readable video"][0]


def test_a_name_in_another_encoding_is_refused(root: Path) -> None:
    (root / "mine" / os.fsdecode(b"caf\xe9.mp4")).write_text("from an old archive")
    with pytest.raises(InputError, match=r"mine/caf.xe9.mp4: the name is not UTF-8 text; rename"):
        source(root)


def test_labelled_without_a_split_beside_others_is_refused(root: Path) -> None:
    lines = (root / "mine/labels.csv").read_text().splitlines()
    text = [f"{lines[0]},split", f"{lines[1]},train", *(f"{line}," for line in lines[2:])]
    (root / "mine/labels.csv").write_text("\n".join(text))
    with pytest.raises(InputError, match=r"take d: labelled but without a split"):
        source(root)
