"""Assembly101: a real LMDB of TSM rows, numpy files, coarse annotations with their quirks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.shipped import read_shipped, shipped_shape
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.tokens.materialise import picked_rows
from pjepa.ui.console import InputError
from tests.worlds.assembly import (
    ACTIONS,
    FRAMES,
    SEQUENCES,
    VIEW,
    write_annotations,
    write_arrays,
    write_lmdb,
)
from tests.worlds.own_videos import write_video


def source(root: Path, **own: object) -> Source:
    return open_source(DataConfig.model_validate({"source": "assembly101", **own}), root)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows") / VIEW
    write_lmdb(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Path) -> Path:
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    write_annotations(tmp_path / "assembly101")
    shutil.copytree(rows, tmp_path / "assembly101/db_TSM_features" / VIEW)
    return tmp_path


def test_the_two_takes_of_a_recording_are_one_group(root: Path) -> None:
    found = source(root)
    assert [(t["split"], t["take_id"].split("/")[0]) for t in found.takes] == [
        ("train", "assembly"), ("train", "disassembly"), ("val", "assembly"), ("val", "disassembly")
    ]  # fmt: skip
    assert [t["group"] for t in found.takes] == [SEQUENCES[0]] * 2 + [SEQUENCES[1]] * 2
    assert found.takes[0]["participant"] == "900"
    assert found.takes[0]["task"] == "excavator"
    assert found.classes.names == ACTIONS
    assert found.classes.background is None
    both = source(root, assembly101={"test": True})  # whose labels are not published
    mine = [t["take_id"] for t in both.takes if t["split"] == "test"]
    assert len(mine) == 2
    assert not [s for s in both.segments if s.take_id in mine]
    assert shipped_shape(both.videos[-1]) == (FRAMES, 2048)


def test_tokens_are_every_eighth_frame_or_the_nearest_at_4(root: Path) -> None:
    row = source(root).videos[1]  # disassembly of the first recording
    assert shipped_shape(row) == (189, 2048)
    shipped = read_shipped(row)
    for fps, frames in ((3.75, [201, 209, 217]), (4.0, [201, 208, 216, 223]), (30.0, [201, 202])):
        picked = picked_rows(row, fps)
        np.testing.assert_allclose(picked.times[: len(frames)], np.array(frames) / 30)
        np.testing.assert_array_equal(shipped.features[picked.index][: len(frames), 0], frames)
    assert picked_rows(row, 4.0).times[-1] < 390 / 30


def test_all_three_layouts_hold_the_same(root: Path, rows: Path) -> None:
    base = root / "assembly101"
    layouts = [source(root)]
    shutil.rmtree(base / "db_TSM_features")
    shutil.copytree(rows, base / VIEW)
    layouts.append(source(root))
    values = [read_shipped(row).features[np.arange(5)] for row in layouts[1].videos]
    shutil.rmtree(base / VIEW)
    write_arrays(base)
    layouts.append(source(root))
    assert len({tuple(row.duration_s for row in found.videos) for found in layouts}) == 1
    assert all((row.features or "").startswith("npy-dt:") for row in layouts[2].videos)
    for row, expected in zip(layouts[2].videos, values, strict=True):
        np.testing.assert_array_equal(read_shipped(row).features[np.arange(5)], expected)


def test_lost_frames_and_features_that_end_early_are_named(root: Path) -> None:
    shutil.rmtree(root / "assembly101/db_TSM_features")
    write_lmdb(root / "assembly101" / VIEW, lost=209, frames=300)
    found = source(root)
    row = found.videos[1]
    assert shipped_shape(row) == (100, 2048)  # frames 201 .. 300
    assert "2 takes end with their features" in found.notes[0].line()
    assert "(89 frames)" in found.notes[0].line()
    with pytest.raises(InputError, match=rf"no key '.*{VIEW}_0000000209.jpg'; the download"):
        read_shipped(row).features[picked_rows(row, 3.75).index]
    with pytest.raises(InputError, match="expected a path inside"):
        source(root, assembly101={"view": "../C1_rgb"})


def test_recordings_give_two_takes_over_the_whole_video(root: Path) -> None:
    with pytest.raises(InputError, match=r"4 takes with no video of view C10119_rgb"):
        source(root, assembly101={"input": "video"})
    for name in SEQUENCES[:2]:
        video = root / "assembly101/recordings" / name / f"{VIEW}.mp4"
        write_video(video, ("cut", "stir", "wait"), part_s=4.0)
    found = source(root, assembly101={"input": "video"})
    assert found.features is None
    one, two = found.videos[:2]
    assert one.video == two.video == f"assembly101/recordings/{SEQUENCES[0]}/{VIEW}.mp4"
    assert one.duration_s == pytest.approx(12.0)
    assert "2 takes end with their video, before their labels" in found.notes[0].line()  # 390 > 361
    starts = [s.start_s for s in found.segments if s.take_id == two.take_id]
    assert starts[0] == pytest.approx(201 / 30)
