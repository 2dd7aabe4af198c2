"""Ego-Exo4D keysteps: which takes, videos, classes and segments are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjepa.ui.console import InputError
from tests.worlds.egoexo4d import PLAN, TAKES, Download, take
from tests.worlds.own_videos import write_video


@pytest.fixture
def download(tmp_path: Path) -> Download:
    return Download(tmp_path)


def test_takes_are_the_annotated_ones(download: Download) -> None:
    download.takes.append(take("uni_unannotated_01_1"))
    download.takes[2]["participant_uid"] = None  # nullable, as the next two are
    download.segments["train"][0]["label_id"] = None  # the step id tells it
    download.segments["train"][0]["ego_segment_name"] = None
    found = download.source()
    assert [row.take_id for row in found.videos] == [*TAKES]
    assert found.videos[1].video == (
        f"egoexo4d/takes/{TAKES[1]}/frame_aligned_videos/aria02_214-1.mp4"
    )
    assert [row.duration_s for row in found.videos] == [pytest.approx(6.0)] * 3
    assert [t["split"] for t in found.takes] == ["train", "train", "val"]
    assert [t["group"] for t in found.takes] == ["uni_cooking_01", "uni_cooking_01", "uni_tea_02"]
    assert [t["participant"] for t in found.takes] == ["7", "7", ""]
    assert found.classes.names == ("Get eggs", "Stir (Cooking, 12)", "Stir (Tea, 90)")
    assert found.classes.background is None
    assert sorted(s.label for s in found.segments if s.take_id == TAKES[0]) == [0, 1]


def test_the_downscaled_tree_is_found(download: Download) -> None:
    small = download.videos(TAKES[0]) / "downscaled/448/aria01_214-1.mp4"
    write_video(small, PLAN)
    rows = {row.take_id: row.video or "" for row in download.source().videos}
    assert rows[TAKES[0]].endswith("downscaled/448/aria01_214-1.mp4")
    assert "downscaled" not in rows[TAKES[2]]
    full = download.source(egoexo4d={"videos": "full"})
    assert not any("downscaled" in (row.video or "") for row in full.videos)
    with pytest.raises(InputError, match=r"2 takes with no ego video \(uni_cooking_01_3, uni_tea"):
        download.source(egoexo4d={"videos": "448"})


def test_two_pairs_of_glasses_the_segments_tell_which(download: Download) -> None:
    entry = download.takes[1]
    entry["frame_aligned_videos"] = {
        **take(TAKES[1], "aria01")["frame_aligned_videos"], **entry["frame_aligned_videos"]
    }  # fmt: skip
    rows = {row.take_id: row.video or "" for row in download.source().videos}
    assert rows[TAKES[1]].endswith("aria02_214-1.mp4")
