"""Stores of patch features stay valid as long as the code makes the same numbers of a clip.

A clip made by a formula is sampled, prepared and encoded by a tiny encoder whose weights are made
by a formula too. Another CPU stays within the tolerance; a changed mean does not. Decoding is not
part of it: tests compare the readers with each other.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pjepa.core.time import Sampling, frame_indices
from pjepa.patches import preprocess, store, vjepa21
from pjepa.patches.backbone import Backbone, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import pooled_grid

TOLERANCE = 1e-3  # one pixel rounded the other way moves a value by a quarter of it
BACKBONES = {"vjepa": "vjepa2_1_vit_tiny", "timm": "timm:test_vit"}
FRAMES, HEIGHT, WIDTH = 40, 48, 72
LOUDER = 5.0  # features change less than pixels do
RAISE = "patch features come out differently: raise BEHAVIOUR in pjepa/patches/store.py, and"
NOTICED = "give tests/patches/test_behaviour.py the new values; every store is then encoded again"
# Of BEHAVIOUR 1.
REFERENCE: dict[str, tuple[float, ...]] = {
    "vjepa": (
        48, 8850, 110.125, 114, 18621, 236.75, 0.08471, 0.18106,
        -0.38231, -0.30961, 0.42282, 0.42717, 0.12969, 0.39804, -0.30409, -0.41849,
        0.40447, 0.41936, 2.74738, 3.07313, 2.94593, 0.74362, 3.20674, 3.4738,
        2.31637, 5.08476, 2.74772, -0.26339, 3.92515, 2.77008, 3.88749, 5.94044,
        1.58478, 1.41453, 2.39019, 2.93202, 4.72457, -0.02345, 2.74307, 2.11738,
        1.32444, 3.19636, 3.95796, 0.96203, 0.08614, 0.18274, -0.38006, -0.30737,
        0.42426, 0.42894, 0.13124, 0.39966, -0.30203, -0.41639, 0.40626, 0.42097,
        2.74579, 3.0772, 2.9426, 0.74327, 3.20714, 3.47621, 2.31542, 5.08699,
        2.74553, -0.26068, 3.92546, 2.7666, 3.89142, 5.9299, 1.59603, 1.40647,
        2.3941, 2.93042, 4.7233, -0.01766, 2.74457, 2.11853, 1.31954, 3.19823,
        3.96019, 0.96163,
    ),
    "timm": (
        48, 8850, 110.125, 114, 18621, 236.75, 0.01606, 0.0806,
        -0.19366, -0.17408, -0.02449, -0.0082, 0.00485, 0.13017, -0.16135, -0.19714,
        -0.02677, -0.01392, 3.327, 3.24576, 0.7964, 1.05707, 3.55153, 2.8739,
        0.89421, 4.98684, 2.72869, 3.22777, 3.59894, 0.47295, 1.2709, 3.84527,
        4.29815, 2.17125, 3.5621, 0.65247, 0.66967, 3.87481, 1.78747, 2.63098,
        2.72347, 2.98576, 2.12574,
    ),
}  # fmt: skip


def canned_values(family: str) -> list[float]:
    """About fifty numbers that sampling, preprocessing and encoding make of a clip."""
    values = sampled_values()
    t, y, x, c = np.ogrid[:FRAMES, :HEIGHT, :WIDTH, :3]
    wave = np.sin(0.31 * t + 0.11 * y + 0.07 * c * x) + np.cos(0.05 * x * (c + 1) - 0.17 * t)
    clip = np.rint(127.5 + 60 * wave).astype(np.uint8)  # smooth moving colours
    for resampler in ("cv2", "antialias") if family == "vjepa" else ("cv2",):
        config = PatchesConfig(
            backbone=BACKBONES[family], checkpoint="random", frames_per_window=4, crop=32,
            resampler=resampler,  # type: ignore[arg-type]
        )  # fmt: skip
        values += encoded_values(load_backbone(config), clip)
    return values


def sampled_values() -> list[float]:
    """Which frames of a film with uneven times the windows of each mode show."""
    shown_at = np.cumsum(0.03 + 0.02 * (np.arange(FRAMES * 3) % 3))
    boundaries = np.array([[0.4, 2.1], [2.6, 4.0]])
    values = []
    for mode, scope in (("block", "segment"), ("trailing", "take")):
        sampling = Sampling(4.0, 2, 3, scope, mode)  # type: ignore[arg-type]
        windows = sampling.windows(19, boundaries)
        times = np.concatenate([sampling.frame_times(window) for window in windows])
        picked = frame_indices(times, shown_at - shown_at[0])
        weights = 1 + np.arange(len(picked)) % 7
        values += [float(len(picked)), float((picked * weights).sum()), float(times.sum())]
    return values


@torch.inference_mode()
def encoded_values(backbone: Backbone, clip: np.ndarray) -> list[float]:
    """Means of pieces of the prepared clip, and some of its features."""
    video = torch.stack([backbone.prepared(clip[:4]), backbone.prepared(clip[-4:])])
    for number, parameter in enumerate(backbone.model.parameters()):
        parameter.copy_(canned_weights(number, parameter))
    features = backbone.encoded(video)  # [B, steps, cells, D]
    facts = backbone.facts
    pooled = pooled_grid(features.flatten(0, 1), facts.rows, facts.columns, 1).flatten()
    means = [float(part.double().mean()) for part in video.flatten().tensor_split(12)]
    return [*means, *(LOUDER * pooled[:: len(pooled) // 24]).tolist()]


def canned_weights(number: int, like: Tensor) -> Tensor:
    """Values for the encoder's tensor of that number; attention is far from even."""
    steps = torch.arange(like.numel(), dtype=torch.float64)
    values = torch.sin(1.7 * steps * (number + 1) + number).float().reshape(like.shape)
    if like.ndim < 2:
        return 0.5 + 0.1 * values
    return values * 3.0 / like[0].numel() ** 0.5


def differs(family: str) -> bool:
    found, expected = canned_values(family), REFERENCE[family]
    return len(found) != len(expected) or bool(
        np.abs(np.subtract(found, expected)).max() > TOLERANCE
    )


@pytest.mark.parametrize("family", BACKBONES)
def test_the_code_makes_what_stores_hold_already(family: str) -> None:
    assert store.BEHAVIOUR == 1
    assert not differs(family), f"{RAISE} {NOTICED}"


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(preprocess, "COEFFICIENT_BITS", 10), (vjepa21, "LAST_POSITION", 14.0)],
)
def test_a_change_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object
) -> None:
    monkeypatch.setattr(module, name, value)
    vjepa21.rope_table.cache_clear()
    assert differs("vjepa")
    vjepa21.rope_table.cache_clear()
