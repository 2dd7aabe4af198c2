"""What extraction asks of a backbone, with V-JEPA behind it."""

import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pjepa.patches.backbone import backbone_facts, load_backbone
from pjepa.patches.checkpoint import build_encoder
from pjepa.patches.config import PatchesConfig, tubelet_of
from pjepa.patches.preprocess import preprocess
from pjepa.patches.vjepa21 import TUBELET
from pjepa.tools.params import Params
from pjepa.ui.console import InputError

FRAMES = np.random.default_rng(0).integers(0, 256, (4, 60, 90, 3), dtype=np.uint8)


def config(**changes: object) -> PatchesConfig:
    values = {"backbone": "vjepa2_1_vit_tiny", "checkpoint": "random", "frames_per_window": 4}
    return PatchesConfig.model_validate({**values, "crop": 48, **changes})


def test_facts_follow_from_the_table() -> None:
    facts = backbone_facts(config(crop=0))
    assert (facts.rows, facts.columns, facts.crop, facts.cells) == (24, 24, 384, 576)
    assert (facts.width, facts.tubelet, facts.weights_id) == (64, 2, "random-vjepa2_1_vit_tiny-0")
    assert tubelet_of("vjepa2_1_vit_base_384") == TUBELET == 2
    assert tubelet_of("timm:resnet50") == 1


@torch.no_grad()
@pytest.mark.parametrize("view", ["center", "first"])
def test_prepared_and_encoded_are_the_official_steps(view: str) -> None:
    backbone = load_backbone(config(view=view))
    window = backbone.prepared(FRAMES)
    assert torch.equal(window, preprocess(FRAMES, 48, "cv2", view))  # type: ignore[arg-type]
    features = backbone.encoded(torch.stack([window, window.flip(1)]))
    assert features.shape == (2, 2, 9, 64)
    assert features.dtype == torch.float32
    plain = build_encoder("vjepa2_1_vit_tiny", "random", 0)(window[None])  # [1, N, D]
    assert torch.equal(features[:1].flatten(1, 2), plain)


@pytest.mark.slow
def test_bf16_is_close_and_stays_float32_outside() -> None:
    exact = load_backbone(config())
    window = exact.prepared(FRAMES)[None]
    rounded = load_backbone(config(precision="bf16")).encoded(window)
    assert rounded.dtype == torch.float32
    assert F.cosine_similarity(exact.encoded(window), rounded, dim=-1).min() > 0.999
    assert not torch.equal(exact.encoded(window), rounded)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_features_are_the_same_features() -> None:
    exact, compiled = load_backbone(config()), load_backbone(config(compile=True))
    window = exact.prepared(FRAMES)
    for batch in (window[None], torch.stack([window, window])):  # the last batch is smaller
        torch.testing.assert_close(compiled.encoded(batch), exact.encoded(batch), atol=1e-5, rtol=0)


def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(InputError, match=r"patches\.compile: torch\.compile needs a C\+\+"):
            load_backbone(config(compile=True))
    with pytest.raises(InputError, match="device cuda:99 cannot be used here"):
        load_backbone(config(device="cuda:99"))
    with pytest.raises(InputError, match="grid 25 is finer than the 24 x 24 cells"):
        backbone_facts(config(crop=0, grid=25))


@pytest.mark.parametrize(
    ("patches", "reason"),
    [
        ({"checkpoint": "/weights/x.pt"}, "is a path of one machine"),
        ({"checkpoint": "../x.pt"}, "is a path of one machine"),
        ({"checkpoint": "~/x.pt"}, "is a path of one machine"),
        ({"frames_per_window": 7}, "7 is not a multiple of 2, the frames in one time step"),
        ({"crop": 100}, "not a multiple of the patch size 16"),
        ({"crop": 64, "grid": 5}, "finer than the 4 patches a side"),
        ({"backbone": "timm:resnet50"}, "must be 1 x tokens.fps .4.0.: one token per step of 1 "),
        ({"backbone": "timm:resnet50", "fps": 4.0, "view": "last"}, "view last is V-JEPA 2.1's"),
        ({"precision": "fp16"}, "fp16"),
    ],
)
def test_impossible_params_stop_before_any_work(patches: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Params.model_validate({"patches": patches})


def test_image_model_has_one_token_per_frame() -> None:
    values = {"backbone": "timm:resnet50", "fps": 4.0, "frames_per_window": 7}
    found = Params.model_validate({"patches": values}).patches
    assert (found.tubelet, found.tokens_fps) == (1, 4.0)
