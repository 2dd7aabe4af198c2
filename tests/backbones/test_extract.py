"""Extraction: equal bytes for any number of workers, and no take encoded twice."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
import yaml

from pjepa.backbones.backbone import load_backbone
from pjepa.backbones.checkpoint import build_encoder
from pjepa.backbones.extract import encoded_windows, extract, pooled_grid
from pjepa.backbones.store import read_patches, take_file_name
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.roots import DATA_ROOT
from pjepa.takes import manifest
from pjepa.takes.manifest import VideoRow
from pjepa.video.preprocess import preprocess
from pjepa.video.reader import open_video

CONFIG = PatchesConfig(
    backbone="vjepa2_1_vit_tiny", checkpoint="random", fps=8.0, frames_per_window=8, crop=32,
    grid=1, batch_windows=2,
)  # fmt: skip
LIMITS = {"take0": np.array([[0.0, 0.75], [1.0, 3.0]])}


def write_video(path: Path, seed: int, frames: int) -> Path:
    colours = np.random.default_rng(seed).integers(0, 256, (frames, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=16)
        stream.width = stream.height = 96
        stream.pix_fmt = "yuv420p"
        for number, colour in enumerate(colours):
            picture = np.zeros((96, 96, 3), np.uint8)
            picture[:, number % 32 : number % 32 + 16] = colour
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 16)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[VideoRow]]:
    folder = tmp_path_factory.mktemp("videos")
    lengths = [40, 25, 50]
    for i, n in enumerate(lengths):
        write_video(folder / f"{i}.mp4", i, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATA_ROOT, str(folder))
        yield [
            VideoRow(f"take{i}", f"{i}.mp4", 16.0, n / 16, root="data")
            for i, n in enumerate(lengths)
        ]


def test_bytes_do_not_depend_on_the_number_of_workers(rows: list[VideoRow], tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        config = CONFIG.model_copy(update={"workers": workers})
        result = extract(rows, LIMITS, config, tmp_path / str(workers))
        assert result.encoded == 3
        found.append({take: (p.name, p.read_bytes()) for take, p in result.files.items()})
    assert found[0] == found[1]


def test_adding_a_take_encodes_exactly_one(rows: list[VideoRow], tmp_path: Path) -> None:
    first = extract(rows[:2], LIMITS, CONFIG, tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in first.files.values()}
    second = extract(rows, LIMITS, CONFIG, tmp_path)
    assert (first.encoded, second.encoded) == (2, 1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert extract(rows, LIMITS, CONFIG, tmp_path).encoded == 0
    moved = {"take0": LIMITS["take0"] + 0.25}
    assert extract(rows, moved, CONFIG, tmp_path).encoded == 1


def test_stored_features_equal_a_plain_forward_pass(rows: list[VideoRow], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"grid": 0, "window_scope": "take"})
    result = extract(rows[:1], {}, config, tmp_path)
    stored = read_patches(result.files["take0"])
    assert stored.info == replace(result.info, checkpoint="")
    assert stored.patches.shape == (10, 4, 64)  # 2.5 s at 4 tokens a second
    encoder = build_encoder(config.backbone, "random", 0)
    with open_video(rows[0].path) as reader, torch.no_grad():
        times = [np.arange(0, 8), np.arange(8, 16), np.clip(np.arange(16, 24), 0, 19)]
        clips = [preprocess(reader.frames(t / 8.0), 32, "cv2") for t in times]
        plain = encoder(torch.stack(clips)).reshape(12, 4, 64)[:10]
    np.testing.assert_allclose(stored.patches, plain.numpy(), atol=4e-3)


def test_a_window_never_sees_beyond_its_segment(rows: list[VideoRow]) -> None:
    backbone = load_backbone(CONFIG)
    with open_video(rows[0].path) as reader:
        whole = np.concatenate(list(encoded_windows(backbone, reader, LIMITS["take0"], CONFIG)))
        other = np.array([[0.0, 0.75], [1.0, 1.25], [1.25, 3.0]])
        cut = np.concatenate(list(encoded_windows(backbone, reader, other, CONFIG)))
    assert whole.shape == cut.shape == (10, 1, 64)
    np.testing.assert_array_equal(whole[:4], cut[:4])
    assert not np.array_equal(whole[4:], cut[4:])


@pytest.mark.parametrize("grid", [1, 2, 3])
def test_grid_pooling(grid: int) -> None:
    patches = torch.randn(3, 16, 5)
    pooled = pooled_grid(patches, rows=4, columns=4, grid=grid)
    assert pooled.shape == (3, grid * grid, 5)
    if grid == 1:
        torch.testing.assert_close(pooled[:, 0], patches.mean(dim=1))
    corner = patches.view(3, 4, 4, 5)[:, : -(-4 // grid), : -(-4 // grid)].mean(dim=(1, 2))
    torch.testing.assert_close(pooled[:, 0], corner)
    assert torch.equal(pooled_grid(patches, 4, 4, 0), patches)


def test_cut_off_and_missing_videos_are_named(rows: list[VideoRow], tmp_path: Path) -> None:
    longer = [replace(rows[0], duration_s=60.0)]
    with pytest.raises(InputError, match=r"2.5 s long, expected 60.0 s; the file is cut off"):
        extract(longer, {}, CONFIG, tmp_path)
    with pytest.raises(InputError, match=r"take gone: no video nowhere.mp4"):
        extract([VideoRow("gone", "nowhere.mp4", 16.0, 1.0)], {}, CONFIG, tmp_path)
    assert not list(tmp_path.glob("*"))


def test_stages_write_patches_and_pooler(
    rows: list[VideoRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pjepa import paths
    from pjepa.work import read_json
    from stages import patches, pooler

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    sections = {"patches": CONFIG.model_dump(), "pooler": {"kind": "mean", "cells": "concat"}}
    paths.PARAMS.write_text(yaml.safe_dump(sections))
    manifest.write_videos(paths.VIDEOS_TABLE, rows)
    limits = [{"take_id": "take0", "start_s": a, "end_s": b} for a, b in LIMITS["take0"]]
    manifest.write_table(paths.BOUNDARIES_TABLE, limits, manifest.BOUNDARIES)
    patches.run()
    patches.run()
    pooler.run()
    said = capsys.readouterr().err
    assert "RANDOM weights" in said
    assert "3 takes, 0 encoded now" in said
    assert "nothing to train" in said
    files = {take_file_name(row.take_id) for row in rows} | {"config.json"}
    assert {path.name for path in paths.PATCHES.iterdir()} == files
    written = read_json(paths.POOLER / "config.json")
    assert (written["kind"], written["cells"], written["width_out"]) == ("mean", "concat", 64)
    labels = {"train_labels": False, "selection_labels": "none", "folds": 0}
    assert written["provenance"] == labels
