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


def source(root: Path, **values: object) -> Source:
    config = DataConfig.model_validate({"source": "assembly101", **values})
    return open_source(config, root)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(tmp_path))
    write_annotations(tmp_path / "assembly101")
    return tmp_path


def test_the_two_takes_of_a_recording_are_one_group(root: Path) -> None:
    write_lmdb(root / "assembly101" / "db_TSM_features" / VIEW)
    found = source(root)
    assert [(t["split"], t["take_id"].split("/")[0]) for t in found.takes] == [
        ("train", "assembly"), ("train", "disassembly"), ("val", "assembly"), ("val", "disassembly")
    ]  # fmt: skip
    assert [t["group"] for t in found.takes] == [SEQUENCES[0]] * 2 + [SEQUENCES[1]] * 2
    assert found.takes[0]["participant"] == "900"
    assert found.takes[0]["task"] == "excavator"
    assert found.classes.names == ACTIONS
    assert found.classes.background is None
    assert found.features is not None
    assert (found.features.lookahead_s, found.features.train_labels) == (0.0, True)


def test_tokens_are_every_eighth_frame_or_the_nearest_at_4(root: Path) -> None:
    write_lmdb(root / "assembly101" / "db_TSM_features" / VIEW)
    row = source(root).videos[1]  # disassembly of the first recording
    assert shipped_shape(row) == (189, 2048)
    shipped = read_shipped(row)
    for fps, frames in ((3.75, [201, 209, 217]), (4.0, [201, 208, 216, 223]), (30.0, [201, 202])):
        picked = picked_rows(row, fps)
        np.testing.assert_allclose(picked.times[: len(frames)], np.array(frames) / 30)
        np.testing.assert_array_equal(shipped.features[picked.index][: len(frames), 0], frames)
    assert picked_rows(row, 4.0).times[-1] < 390 / 30


def test_all_three_layouts_hold_the_same(root: Path) -> None:
    base = root / "assembly101"
    write_lmdb(base / VIEW)
    below = source(root)
    shutil.copytree(base / VIEW, base / "db_TSM_features" / VIEW)
    inside = source(root)
    write_arrays(base)
    lmdb_rows = [read_shipped(row).features[np.arange(5)] for row in inside.videos]
    for folder in (VIEW, "db_TSM_features"):
        (base / folder).rename(base / f"not {folder}")
    arrays = source(root)
    for one, two, three, rows in zip(
        below.videos, inside.videos, arrays.videos, lmdb_rows, strict=True
    ):
        assert one.duration_s == two.duration_s == three.duration_s
        np.testing.assert_array_equal(read_shipped(three).features[np.arange(5)], rows)
    assert all((row.features or "").startswith("npy-dt:") for row in arrays.videos)


def test_features_that_end_early_cut_the_take_and_say_so(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW, frames=300)
    found = source(root)
    assert shipped_shape(found.videos[1]) == (100, 2048)  # frames 201 .. 300
    assert "2 takes end with their features" in found.notes[0].line()
    assert "(89 frames)" in found.notes[0].line()


def test_a_lost_frame_is_named(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW, lost=209)
    row = source(root).videos[1]
    with pytest.raises(InputError, match=rf"no key '.*{VIEW}_0000000209.jpg'; the download"):
        read_shipped(row).features[picked_rows(row, 3.75).index]


def test_test_takes_come_without_labels_and_on_request(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW)
    found = source(root, assembly101={"test": True})
    mine = [t["take_id"] for t in found.takes if t["split"] == "test"]
    assert len(mine) == 2
    assert not [s for s in found.segments if s.take_id in mine]
    assert shipped_shape(found.videos[-1]) == (FRAMES, 2048)


def test_a_recording_without_features_may_be_left_out(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW)
    coarse = root / "assembly101/coarse-annotations"
    split = coarse / "coarse_splits/val_coarse_assembly.txt"
    label = coarse / f"coarse_labels/assembly_{SEQUENCES[1]}.txt"
    split.write_text(split.read_text().replace("user_id", "user_ix"))
    label.rename(str(label).replace("user_id", "user_ix"))
    with pytest.raises(InputError, match=r"1 takes with no features of view C10119_rgb \(as"):
        source(root)
    assert len(source(root, missing="skip").videos) == 3
    with pytest.raises(InputError, match="expected a path inside"):
        source(root, assembly101={"view": "../C1_rgb"})


def test_rows_of_no_length_are_left_out_and_counted(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW)
    before = source(root)
    label = root / f"assembly101/coarse-annotations/coarse_labels/assembly_{SEQUENCES[0]}.txt"
    label.write_text(f"3\t3\tinspect toy\t\n{label.read_text()}\n390\t390\tinspect toy\t")
    found = source(root)
    assert (found.segments, found.videos) == (before.segments, before.videos)
    assert f"2 segments of no length left out: assembly/{SEQUENCES[0]}/{VIEW}" in [
        note.line() for note in found.notes
    ]


def test_segments_that_overlap_are_told(root: Path) -> None:
    write_lmdb(root / "assembly101" / VIEW)
    label = root / f"assembly101/coarse-annotations/coarse_labels/assembly_{SEQUENCES[0]}.txt"
    label.write_text("21\t99\tattach wheel\t\n90\t181\tinspect toy\t")
    assert "1 takes whose segments overlap or leave gaps" in source(root).notes[0].line()


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
