"""`hf:` backbones: tiny random models in the hub's format, against transformers itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pjepa.patches.backbone import backbone_facts, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import window_flops
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.store import read_patches
from pjepa.storage.roots import DATA_ROOT
from pjepa.tools.fetch import obtained
from pjepa.ui.console import InputError
from tests.video.films import write_film

transformers = pytest.importorskip("transformers")
JEPA = {
    "crop_size": 32, "frames_per_clip": 8, "hidden_size": 48, "num_attention_heads": 2,
    "num_hidden_layers": 2, "pred_hidden_size": 24, "pred_num_attention_heads": 2,
    "pred_num_hidden_layers": 1, "num_pooler_layers": 1,
}  # fmt: skip
MAE = {
    "image_size": 32, "num_frames": 8, "hidden_size": 32, "num_attention_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 64, "decoder_hidden_size": 16,
    "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 1,
    "decoder_intermediate_size": 32,
}  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders as `save_pretrained` writes them: a V-JEPA 2 encoder and a VideoMAE pretrainer."""
    torch.manual_seed(0)
    place = tmp_path / "checkpoints" / "someone"
    transformers.VJEPA2Model(transformers.VJEPA2Config(**JEPA)).save_pretrained(place / "jepa")
    whole = transformers.VideoMAEForPreTraining(transformers.VideoMAEConfig(**MAE))
    whole.save_pretrained(place / "mae")
    norms = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}
    (place / "mae/preprocessor_config.json").write_text(json.dumps(norms))
    monkeypatch.setenv(DATA_ROOT, str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return place


def config_of(name: str, **changes: Any) -> PatchesConfig:
    given = {"backbone": f"hf:someone/{name}", "frames_per_window": 8, "window_scope": "take"}
    return PatchesConfig.model_validate({**given, **changes})


@pytest.mark.slow
def test_features_are_those_of_transformers(saved: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (8, 48, 64, 3), dtype=np.uint8)
    for name, width, kind in (("jepa", 48, "VJEPA2Model"), ("mae", 32, "VideoMAEModel")):
        config = config_of(name)
        facts = backbone_facts(config)
        assert (facts.width, facts.rows, facts.columns, facts.tubelet) == (width, 2, 2, 2)
        backbone = load_backbone(config, facts)
        window = backbone.prepared(frames)
        found = backbone.encoded(window[None])
        assert found.shape == (1, 4, 4, width)
        model = getattr(transformers, kind).from_pretrained(saved / name).eval()
        with torch.no_grad():
            pixels = window.transpose(0, 1)[None]  # [1, T, 3, S, S]
            own = model(pixels).last_hidden_state if name == "mae" else (
                model.get_vision_features(pixels))  # fmt: skip
        torch.testing.assert_close(found, own.unflatten(1, (4, 4)))


def test_preprocessing_is_the_processors(saved: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (8, 48, 64, 3), dtype=np.uint8)
    backbone: Any = load_backbone(config_of("jepa", resampler="antialias"))
    processor = transformers.VJEPA2VideoProcessor(crop_size=32)
    video = torch.from_numpy(frames).permute(0, 3, 1, 2)
    expected = processor(video, return_tensors="pt")["pixel_values_videos"][0].transpose(0, 1)
    assert (backbone.prepared(frames) - expected).abs().max() < 0.02  # a level of 255, normalised
    mae: Any = load_backbone(config_of("mae"))
    black = mae.prepared(np.zeros((8, 32, 32, 3), np.uint8))
    torch.testing.assert_close(black, torch.full_like(black, -2.0))  # (0 - 0.5) / 0.25


def test_a_video_is_encoded_with_times_and_identity(saved: Path, tmp_path: Path) -> None:
    film, target = write_film(tmp_path / "a.mp4", frames=20), tmp_path / "a.safetensors"
    config = config_of("jepa", grid=1)
    facts = backbone_facts(config)
    done = encoded_job(Job("x", "a", film, 0.0, None, target), config, facts, lambda frames: None)
    assert done.reason is None
    stored = read_patches(target)
    assert stored.patches.shape == (5, 1, 48)  # 1.25 s at 4 steps a second
    assert (stored.info.weights_id, stored.info.backbone) == (facts.weights_id, "hf:someone/jepa")
    assert window_flops(config, facts) > 0
    assert obtained("hf:someone/jepa") == [saved / "jepa"]


def test_weights_have_an_identity(saved: Path) -> None:
    first = backbone_facts(config_of("jepa")).weights_id
    state = load_file(saved / "jepa/model.safetensors")
    state["predictor.layernorm.bias"] += 1.0  # not used for features
    save_file(state, saved / "jepa/model.safetensors", {"format": "pt"})
    assert backbone_facts(config_of("jepa")).weights_id == first
    state["encoder.layernorm.bias"] += 1.0
    save_file(state, saved / "jepa/model.safetensors", {"format": "pt"})
    assert backbone_facts(config_of("jepa")).weights_id != first
    random = config_of("jepa", checkpoint="random")
    assert backbone_facts(random).weights_id == "random-hf:someone/jepa-0"


@pytest.mark.parametrize(
    ("changes", "stated", "message"),
    [
        ({"crop": 48}, {}, "takes 32 px"),
        ({}, {"model_type": "bert"}, "is a 'bert' model"),
        ({}, {"_name_or_path": "someone/vjepa2.1-vitb"}, "calls itself V-JEPA 2.1"),
        ({}, {"num_hidden_layers": 3}, "missing tensors"),
        ({}, {"num_hidden_layers": 1}, "unexpected tensors"),
        ({}, {"tubelet_size": 1}, "1 frames per step"),
    ],
)
def test_what_cannot_be_right_is_refused(
    saved: Path, changes: dict[str, Any], stated: dict[str, Any], message: str
) -> None:
    file = saved / "jepa/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))
    with pytest.raises(InputError, match=message):
        backbone_facts(config_of("jepa", **changes))


def test_windows_of_another_length_and_absent_models_are_refused(saved: Path) -> None:
    with pytest.raises(InputError, match="frames_per_window 16: hf:someone/mae takes 8"):
        backbone_facts(config_of("mae", frames_per_window=16))
    with pytest.raises(InputError, match=r"not on this machine.*someone/gone"):
        backbone_facts(config_of("gone"))
