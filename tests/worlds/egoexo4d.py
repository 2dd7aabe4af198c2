"""Ego-Exo4D in small: takes.json, segment files and mapping as the `egoexo` tool leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from tests.worlds.own_videos import write_video

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
