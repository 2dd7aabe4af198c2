"""Label Studio's exports: frames are those of the labelling configuration, not of the video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pjepa.live.formats import Labelled, PredictedStep, labelstudio_config, labelstudio_text
from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.takes.sources.scan import scan
from pjepa.ui.console import InputError
from tests.worlds.own_videos import write_video

VIDEO_FPS = 30


def config(**values: object) -> DataConfig:
    own = {"path": "mine", "labels": "labels/export.json", **values}
    return DataConfig.model_validate({"source": "folder", "folder": own})


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio")
    write_video(folder / "x.mp4", ("cut", "stir"), 2.0, VIDEO_FPS)
    return folder / "x.mp4"


@pytest.fixture
def root(tmp_path: Path, film: Path) -> Path:
    (tmp_path / "mine/labels").mkdir(parents=True)
    (tmp_path / "mine/x.mp4").symlink_to(film)
    return tmp_path


def task(ranges: list[tuple[int, int]], **data: object) -> dict[str, Any]:
    """A task as `Export > JSON` writes it, with all that is not about steps."""
    labels = ("cut", "stir")
    result = [
        {
            "id": f"r{k}", "type": "timelinelabels", "from_name": "steps", "to_name": "video",
            "value": {"ranges": [{"start": a, "end": b}], "timelinelabels": [labels[k]]},
        }
        for k, (a, b) in enumerate(ranges)
    ]  # fmt: skip
    annotation = {
        "id": 9, "completed_by": 1, "was_cancelled": False, "result": result, "prediction": {},
    }  # fmt: skip
    video = {"video": "/data/upload/1/0a1b2c3d-x.mp4"}
    return {
        "id": 4, "annotations": [annotation], "predictions": [], "data": {**video, **data},
        "drafts": [], "file_upload": "0a1b2c3d-x.mp4",
    }  # fmt: skip


def export(root: Path, tasks: list[dict[str, Any]], view: str | None = None) -> None:
    (root / "mine/labels/export.json").write_text(json.dumps(tasks))
    if view is not None:
        (root / "mine/labels/config.xml").write_text(view)


def spans(found: Source) -> list[tuple[float, float, str]]:
    names = found.classes.names
    return [
        (round(s.start_s, 6), round(s.end_s, 6), names[s.label])
        for s in sorted(found.segments, key=lambda s: s.start_s)
    ]


def view(rate: str | None) -> str:
    written = "" if rate is None else f' frameRate="{rate}"'
    return (
        "<View>\n  <!-- one rate for all videos -->\n"
        '  <TimelineLabels name="steps" toName="video"><Label value="cut"/></TimelineLabels>\n'
        f'  <Video name="video" value="$video"{written} timelineHeight="120"/>\n</View>'
    )


RATES = [  # what the configuration says, what params say, what a task says; the rate that counts
    ("24", None, {}, 24, "count at 24 frames per second (config.xml)"),
    ("25", None, {}, 25, "count at 25 frames per second (config.xml)"),
    ("60", 25, {}, 25, "25 frames per second (data.folder.frame_rate)"),
    ("$fps", None, {"fps": 20}, 20, ""),
    (None, None, {}, 24, ""),  # as Label Studio counts then
    ("often", None, {}, 24, ""),
    ("0.04", None, {}, 25, ""),  # seconds per frame
]


@pytest.mark.parametrize(("written", "given", "data", "rate", "note"), RATES)
def test_frames_are_those_of_the_configuration(
    root: Path, written: str | None, given: int | None, data: dict[str, Any], rate: int, note: str
) -> None:
    """Two steps of 2 s in a video of 30 frames a second, labelled at other rates."""
    export(root, [task([(1, 2 * rate), (2 * rate + 1, 4 * rate)], **data)], view(written))
    found = open_source(config(frame_rate=given), root)
    assert spans(found) == [(0.0, 2.0, "cut"), (2.0, 4.0, "stir")]
    assert note in found.notes[0].line()


@pytest.mark.parametrize("rate", [24.0, 25.0, 30.0, 30000 / 1001])
def test_predictions_come_back_where_they_were(root: Path, rate: float) -> None:
    """Written for videos of any rate, accepted in Label Studio, exported, read."""
    steps = [PredictedStep(0.0, 1.5, "cut", 0.9), PredictedStep(1.5, 3.9, "stir", 0.6)]
    (written,) = json.loads(labelstudio_text(Labelled("x.mp4", rate, steps)))
    result = written.pop("predictions")[0]["result"]
    tasks = [{**written, "annotations": [{"result": result}]}]
    export(root, tasks, labelstudio_config(["cut", "stir", "wait"]))
    found = spans(open_source(config(), root))
    for step, (start, end, label) in zip(steps, found, strict=True):
        assert label == step.label
        assert abs(start - step.start) <= 0.5 / rate + 1e-6
        assert abs(end - step.end) <= 0.5 / rate + 1e-6


def test_an_unknown_rate_is_asked_for(root: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_source(config(), root)

    export(root, [task([(1, 48)])])
    refused(r"there is none beside it; .*data.folder.frame_rate \(24")
    (root / "mine/labels/camera.xml").write_text("<Video><frameRate>50</frameRate></Video>")
    (root / "mine/labels/broken.xml").write_text("<View>")
    refused("there is none beside it")
    (root / "mine/labels/one.xml").write_text(view("25"))
    (root / "mine/labels/two.xml").write_text(view("30"))
    refused("those beside it say 25, 30")
    (root / "mine/labels/two.xml").unlink()
    listed = [entry["path"] for entry in scan(config(), root)["files"]]
    assert "labels/one.xml" in listed  # so that DVC notices another rate
    (root / "mine/labels/one.xml").write_text(view("$fps"))
    refused(r"task 4: one.xml counts frames at \$fps, but .*'fps'")


def test_predictions_that_nobody_accepted_are_no_labels(root: Path) -> None:
    steps = [PredictedStep(0.0, 1.0, "cut", 0.9)]
    (guess,) = json.loads(labelstudio_text(Labelled("x.mp4", 30.0, steps)))
    for tasks in ([guess], [{**guess, "annotations": []}]):
        export(root, tasks)
        found = open_source(config(), root)
        assert found.segments == []
        said = "tasks with predictions that nobody accepted: not used: export.json (1)"
        assert said in found.notes[0].line()
