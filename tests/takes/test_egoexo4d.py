"""Ego-Exo4D keysteps: takes.json, segment files and mapping as the `egoexo` tool leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError
from tests.takes.own_videos import write_video

STEPS = [(0, 371, "Get eggs", "Cooking"), (1, 12, "Stir", "Cooking"), (2, 90, "Stir", "Tea")]
TAKES = ("uni_cooking_01_2", "uni_cooking_01_3", "uni_tea_02_1")
PLAN = ("cut", "stir", "wait")


def take(name: str, camera: str = "aria01") -> dict[str, Any]:
    stream = {"cam_id": camera, "stream_id": "214-1", "clip_uid": None}
    video = f"frame_aligned_videos/{camera}_214-1.mp4"
    return {
        "take_uid": f"uid-{name}", "take_name": name, "root_dir": f"takes/{name}",
        "task_name": "Making eggs", "parent_task_name": None, "duration_sec": 6.0,
        "task_start_sec": None, "task_end_sec": None, "best_exo": None, "is_dropped": False,
        "participant_uid": 7, "capture": {"cameras": [{"cam_id": camera, "is_ego": True}]},
        "frame_aligned_videos": {
            camera: {"rgb": {**stream, "relative_path": video}, "slam-left": None},
            "cam01": {"0": {"relative_path": "frame_aligned_videos/cam01.mp4"}},
            "collage": None, "best_exo": None,
        },
    }  # fmt: skip


def segment(name: str, start: float, end: float, label: int, camera: str = "aria01") -> dict:
    clip = f"train/{name}/start{start}_end{end}_{camera}_214-1.mp4"
    return {
        "segment_name_list": [clip], "ego_segment_name": clip, "take_uid": f"uid-{name}",
        "take_name": name, "start_time": start, "end_time": end, "label_id": label,
        "step_unique_id": STEPS[label][1], "step_name": STEPS[label][2],
    }  # fmt: skip


class Download:
    """A small download; `write()` puts its JSON on disk."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "egoexo4d"
        self.takes = [take(TAKES[0]), take(TAKES[1], "aria02"), take(TAKES[2])]
        self.segments = {
            "train": [
                segment(TAKES[0], 3.0, 5.5, 1),
                segment(TAKES[0], 0.5, 3.5, 0),  # out of order, overlaps
                segment(TAKES[1], 1.0, 2.0, 2, "aria02"),
                segment(TAKES[1], 1.0, 2.0, 2, "aria02"),  # repeated
            ],
            "val": [segment(TAKES[2], 0.0, 4.0, 0)],
        }
        for name, camera in zip(TAKES, ("aria01", "aria02", "aria01"), strict=True):
            write_video(self.videos(name) / f"{camera}_214-1.mp4", PLAN)
        self.write()

    def videos(self, name: str) -> Path:
        return self.folder / "takes" / name / "frame_aligned_videos"

    def write(self) -> None:
        benchmark = self.folder / "annotations/keystep_benchmark"
        benchmark.mkdir(parents=True, exist_ok=True)
        (self.folder / "takes.json").write_text(json.dumps(self.takes))
        for split, segments in self.segments.items():
            value = {"date": "x", "description": "", "splits": [split], "segments": segments}
            (benchmark / f"keystep_segment_{split}.json").write_text(json.dumps(value))
        rows = ["label_id,step_unique_id,step_name,scenario_name"]
        rows += [",".join(map(str, step)) for step in STEPS]
        (benchmark / "label_mapping.csv").write_text("\n".join(rows))

    def source(self, **values: object) -> Source:
        self.write()
        config = DataConfig.model_validate({"source": "egoexo4d", **values})
        return open_source(config, self.folder.parent)


@pytest.fixture
def download(tmp_path: Path) -> Download:
    return Download(tmp_path)


def test_takes_are_the_annotated_ones(download: Download) -> None:
    download.takes.append(take("uni_unannotated_01_1"))
    found = download.source()
    assert [row.take_id for row in found.videos] == [*TAKES]
    assert found.videos[1].video == (
        f"egoexo4d/takes/{TAKES[1]}/frame_aligned_videos/aria02_214-1.mp4"
    )
    assert [row.duration_s for row in found.videos] == [pytest.approx(6.0)] * 3
    assert [t["split"] for t in found.takes] == ["train", "train", "val"]
    assert [t["group"] for t in found.takes] == ["uni_cooking_01", "uni_cooking_01", "uni_tea_02"]
    assert found.takes[0]["participant"] == "7"
    assert found.classes.names == ("Get eggs", "Stir (Cooking, 12)", "Stir (Tea, 90)")
    assert found.classes.background is None
    assert "1 segments appear twice" in found.notes[0].line()


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


def test_nullable_fields_are_no_fault(download: Download) -> None:
    download.takes[0]["participant_uid"] = None
    download.segments["train"][0]["label_id"] = None  # the step id tells it
    download.segments["train"][0]["ego_segment_name"] = None
    found = download.source()
    assert found.takes[0]["participant"] == ""
    assert sorted(s.label for s in found.segments if s.take_id == TAKES[0]) == [0, 1]


def test_dropped_and_missing_takes_are_listed(download: Download) -> None:
    download.takes[0]["is_dropped"] = True
    (download.videos(TAKES[1]) / "aria02_214-1.mp4").unlink()
    download.segments["val"].append(segment("nowhere_1", 0.0, 1.0, 0))
    with pytest.raises(InputError, match=r"1 takes with no entry in takes.json \(nowhere_1\)"):
        download.source()
    found = download.source(missing="skip")
    assert [row.take_id for row in found.videos] == [TAKES[2]]
    assert found.skipped == {
        "no entry in takes.json": ["nowhere_1"], "no ego video": [TAKES[1]]
    }  # fmt: skip
    assert f"1 takes left out, is_dropped in takes.json: {TAKES[0]}" in [
        note.line() for note in found.notes
    ]


def break_label(d: Download) -> None:
    d.segments["train"][0]["label_id"] = 2


def break_unknown(d: Download) -> None:
    d.segments["train"][0] |= {"label_id": 9, "step_unique_id": 999}


def break_time(d: Download) -> None:
    d.segments["train"][1]["end_time"] = None


def break_order(d: Download) -> None:
    d.segments["train"][1]["end_time"] = 0.1


def break_split(d: Download) -> None:
    d.segments["val"].append(segment(TAKES[0], 0.0, 1.0, 0))


def break_path(d: Download) -> None:
    stream = d.takes[0]["frame_aligned_videos"]["aria01"]["rgb"]
    stream["relative_path"] = "../../../../etc/aria01.mp4"


FAULTS = {
    break_label: r"keystep_segment_train.json, segments\[0\]: label_id 2, but step 12 has label 1",
    break_unknown: r"segments\[0\]: label_id 9, step 999: not in label_mapping.csv",
    break_time: r"segments\[1\]: expected the key 'end_time'",
    break_order: r"segments\[1\]: a segment from 0.5 to 0.1 s",
    break_split: r"keystep_segment_val.json: take uni_cooking_01_2 is in train and in val",
    break_path: r"etc/.*aria01.mp4.*expected a path inside",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_file_and_key(download: Download, fault: Any) -> None:
    fault(download)
    with pytest.raises(InputError, match=FAULTS[fault]) as caught:
        download.source()
    assert "\n" not in str(caught.value)


def test_a_video_that_cannot_be_read_is_named(download: Download) -> None:
    (download.videos(TAKES[2]) / "aria01_214-1.mp4").write_text("not a video")
    with pytest.raises(InputError, match=r"1 takes with no readable video .*aria01_214-1.mp4"):
        download.source()
