"""Preprocessing equals the official transform (golden vectors)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pjepa.patches.preprocess import crop_geometry, preprocess

GOLDEN = load_file(Path(__file__).parents[1] / "golden/vjepa21/preprocess.safetensors")


@pytest.mark.parametrize("clip", ["landscape", "portrait"])
@pytest.mark.parametrize(
    ("resampler", "name"), [("cv2", "center_numpy_cv2"), ("antialias", "center_torch_antialias")]
)
def test_equals_official_transform(clip: str, resampler: str, name: str) -> None:
    frames = GOLDEN[f"{clip}/frames_u8_thwc"].numpy()
    ours = preprocess(frames, crop=32, resampler=resampler)  # type: ignore[arg-type]
    assert (ours - GOLDEN[f"{clip}/{name}"]).abs().max() <= 1e-6


@pytest.mark.parametrize("clip", ["landscape", "portrait"])
@pytest.mark.parametrize(("view", "number"), [("first", 0), ("middle", 1), ("last", 2)])
def test_equals_official_views(clip: str, view: str, number: int) -> None:
    frames = GOLDEN[f"{clip}/frames_u8_thwc"].numpy()
    ours = preprocess(frames, 32, "cv2", view)  # type: ignore[arg-type]
    assert (ours - GOLDEN[f"{clip}/view3_{number}_numpy_cv2"]).abs().max() <= 1e-6


def test_resampler_matters_on_sharp_content() -> None:
    frames = GOLDEN["landscape/frames_u8_thwc"].numpy()
    assert (preprocess(frames, 32, "cv2") - preprocess(frames, 32, "antialias")).abs().max() > 0.1


def test_matching_short_side_is_only_cropped() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, 73, 90, 3), dtype=np.uint8)
    geometry = crop_geometry(73, 90, 64)
    assert (geometry.height, geometry.width) == (73, 90)
    top, left = geometry.top, geometry.left
    kept = torch.from_numpy(frames[:, top : top + 64, left : left + 64])
    mean = torch.tensor([0.485, 0.456, 0.406])
    std = torch.tensor([0.229, 0.224, 0.225])
    expected = ((kept / 255 - mean) / std).permute(3, 0, 1, 2)
    torch.testing.assert_close(preprocess(frames, 64, "cv2"), expected)


def test_crop_offset_rounds_half_to_even() -> None:
    assert crop_geometry(73, 73, 64).top == 4  # 4.5
    assert crop_geometry(480, 640, 384).height == 438


@pytest.mark.parametrize("size", [(20, 31), (300, 200)])
def test_constant_frames_stay_constant(size: tuple[int, int]) -> None:
    frames = np.full((1, *size, 3), 200, dtype=np.uint8)
    out = preprocess(frames, 32, "cv2")
    assert torch.equal(out, out[:, :1, :1, :1].expand_as(out))


def test_batched_frames_equal_single_frames() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (5, 40, 60, 3), dtype=np.uint8)
    whole = preprocess(frames, 32, "cv2")
    single = torch.cat([preprocess(frames[i : i + 1], 32, "cv2") for i in range(5)], dim=1)
    assert torch.equal(whole, single)
