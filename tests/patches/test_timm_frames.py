"""timm models as backbones: timm's own numbers and preprocessing, frame by frame."""

import math
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config

from pjepa.patches.backbone import BackboneFacts, backbone_facts, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.ui.console import InputError
from pjepa.video.reader import open_video
from tests.patches.patch_infos import features
from tests.video.films import FPS, write_film

VIT, CNN = "vit_tiny_patch16_224", "resnet18"
FRAMES = np.random.default_rng(0).integers(0, 256, (3, 70, 110, 3), dtype=np.uint8)


def config(name: str, **changes: object) -> PatchesConfig:
    values = {"checkpoint": "random", "fps": 4.0, "frames_per_window": 3, **changes}
    return PatchesConfig.model_validate({"backbone": f"timm:{name}", **values})


def plain_model(name: str, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return timm.create_model(name, pretrained=False).eval()


@torch.no_grad()
@pytest.mark.parametrize(("name", "cells", "width"), [(VIT, 196, 192), (CNN, 49, 512)])
def test_features_are_timms_own(name: str, cells: int, width: int) -> None:
    before = torch.get_rng_state()
    backbone = load_backbone(config(name, seed=3))
    assert torch.equal(torch.get_rng_state(), before)
    side = int(cells**0.5)
    assert backbone.facts == BackboneFacts(
        f"timm:{name}", f"random-timm:{name}-3-timm{timm.__version__}", width, side, side, 1, 224
    )
    model = plain_model(name, 3)
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    images = torch.stack([transform(Image.fromarray(frame)) for frame in FRAMES])  # [T, 3, S, S]
    window = backbone.prepared(FRAMES)  # [3, T, S, S]
    assert torch.equal(window.transpose(0, 1), images)
    found = backbone.encoded(torch.stack([window, window.flip(1)]))
    plain = model.forward_features(images)
    plain = plain[:, 1:] if name == VIT else plain.flatten(2).transpose(1, 2)  # no class token
    assert found.shape == (2, 3, cells, width)
    torch.testing.assert_close(found[0], plain)
    torch.testing.assert_close(found[1], plain.flip(0))  # a frame sees no other


@pytest.mark.parametrize(
    ("name", "crop", "shape"),
    [
        ("vit_small_patch16_dinov3", 0, (16, 16, 384)),
        ("vit_small_patch16_dinov3", 96, (6, 6, 384)),  # four registers and a class token dropped
        ("swin_tiny_patch4_window7_224", 0, (7, 7, 768)),  # channels last
        ("convnext_atto", 128, (4, 4, 320)),
        ("xcit_nano_12_p8_224", 0, (28, 28, 128)),  # a prefix that timm does not announce
        (VIT, 112, (7, 7, 192)),
    ],
)
def test_grid_of_other_families_and_sizes(
    name: str, crop: int, shape: tuple[int, int, int]
) -> None:
    facts = backbone_facts(config(name, crop=crop))
    assert (facts.rows, facts.columns, facts.width) == shape
    if crop:
        backbone = load_backbone(config(name, crop=crop))
        found = backbone.encoded(backbone.prepared(FRAMES[:1])[None])
        assert found.shape == (1, 1, shape[0] * shape[1], shape[2])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_local_file_is_loaded_strictly_without_its_classifier(tmp_path: Path, suffix: str) -> None:
    state = plain_model(VIT, 7).state_dict()
    path = tmp_path / f"weights.{suffix}"

    def write(tensors: dict[str, torch.Tensor]) -> None:
        if suffix == "pth":
            torch.save({"epoch": 3, "state_dict": tensors}, path)
        else:
            save_file(tensors, path)

    write(state)
    chosen = config(VIT, checkpoint=str(path))
    backbone = load_backbone(chosen)
    same = load_backbone(config(VIT, seed=7))
    window = same.prepared(FRAMES)[None]
    assert torch.equal(backbone.encoded(window), same.encoded(window))
    identity = backbone.facts.weights_id
    write({k: v for k, v in state.items() if not k.startswith("head.")})  # without a classifier
    assert backbone_facts(chosen).weights_id == identity
    write({**state, "norm.bias": state["norm.bias"] + 1e-6})
    assert backbone_facts(chosen).weights_id != identity
    write({k: v for k, v in state.items() if k != "norm.bias"})
    with pytest.raises(InputError, match=r"does not fit timm:vit.*norm\.bias"):
        load_backbone(chosen)
    write({**state, "more": torch.ones(1)})
    with pytest.raises(InputError, match=r"does not fit timm:vit.*more"):
        load_backbone(chosen)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("resnet51", {}, "timm has no model 'resnet51'"),
        (CNN, {"grid": 9}, "grid 9 is finer than the 7 x 7 cells"),
        ("hiera_tiny_224", {"crop": 100}, "hiera_tiny_224: gives no feature map at 100 px"),
        (CNN, {"checkpoint": "gone.pth"}, r"no file gone\.pth"),
        (CNN, {"checkpoint": "pretrained"}, r"huggingface\.co/timm/resnet18\.a1_in1k and set"),
    ],
)
def test_bad_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, changes: dict[str, object], message: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=message):
        backbone_facts(config(name, **changes))


def test_image_model_goes_through_the_same_extraction(tmp_path: Path) -> None:
    film = write_film(tmp_path / "film.mp4", 0, 40)
    chosen = config(CNN, crop=64, window_scope="take", frames_per_window=4, batch_windows=2)
    stored, count = features(film, chosen), math.ceil(4 * 40 / FPS)
    assert stored.shape == (count, 4, 512)  # 2 x 2 cells, a token per frame
    backbone = load_backbone(chosen)
    with open_video(film) as reader:
        plain = backbone.encoded(backbone.prepared(reader.frames(np.arange(count) / 4.0))[None])
    np.testing.assert_allclose(stored, plain[0].numpy(), atol=4e-3)
