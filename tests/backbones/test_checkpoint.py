"""Weights: official nesting, seeded random ones, and refusals in one line."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pjepa.backbones.checkpoint import (
    build_encoder,
    encoder_from_file,
    load_encoder,
    random_encoder,
)
from pjepa.backbones.vjepa21 import VARIANTS, Variant
from pjepa.errors import InputError

FOLDER = Path(__file__).parents[1] / "golden/vjepa21"
GOLDEN = load_file(FOLDER / "fake_ckpt_io.safetensors")
TINY = "vjepa2_1_vit_tiny"
CASES = {
    "fake_vjepa2_1_vitb_dist_style.pt": "ema_encoder",
    "fake_vjepa2_1_vitg_style.pt": "target_encoder",
}


def small(key: str) -> Variant:
    return Variant(8, 12, 1, 32, (2, 5, 8, 11), encoder_key=key)


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_official_file_gives_official_features(name: str) -> None:
    encoder = encoder_from_file(small(CASES[name]), FOLDER / name)
    video = GOLDEN[f"{name}/input"]
    out = encoder(video)
    assert (out - GOLDEN[f"{name}/out"]).abs().max() <= 1e-5
    assert (encoder.hierarchical(video) - GOLDEN[f"{name}/hier"]).abs().max() <= 1e-5
    image = encoder(video[:, :, :1])
    assert (image - GOLDEN[f"{name}/out_img_first_frame"]).abs().max() <= 1e-5
    assert (out - GOLDEN[f"{name}/out_if_student_loaded_by_mistake"]).abs().max() > 1e-3


def test_safetensors_of_the_encoder_alone(tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_file(random_encoder(VARIANTS[TINY], seed=3).state_dict(), path)
    loaded = load_encoder(TINY, str(path), seed=0)
    assert loaded.weights_id == hashlib.sha256(path.read_bytes()).hexdigest()
    expected = random_encoder(VARIANTS[TINY], seed=3)(torch.ones(1, 3, 2, 32, 32))
    assert torch.equal(loaded.encoder(torch.ones(1, 3, 2, 32, 32)), expected)


def test_random_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_encoder(TINY, "random", 5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = build_encoder(TINY, "random", 5).state_dict()
    other = build_encoder(TINY, "random", 6).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["patch_embed.proj.weight"], other["patch_embed.proj.weight"])
    assert load_encoder(TINY, "random", 5).weights_id == "random-vjepa2_1_vit_tiny-5"


def test_checkpoint_of_another_variant_is_refused(tmp_path: Path) -> None:
    name = "fake_vjepa2_1_vitb_dist_style.pt"
    with pytest.raises(InputError, match="expected the top-level key 'target_encoder'"):
        encoder_from_file(small("target_encoder"), FOLDER / name)
    with pytest.raises(InputError, match=r"does not fit patches\.backbone"):
        build_encoder("vjepa2_1_vit_base_384", str(FOLDER / name), 0)
    path = tmp_path / "tiny.safetensors"
    state = random_encoder(VARIANTS[TINY], 0).state_dict()
    save_file({k: v for k, v in state.items() if k != "norms_block.0.bias"}, path)
    with pytest.raises(InputError, match=r"1 tensors missing.*norms_block\.0\.bias"):
        build_encoder(TINY, str(path), 0)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("executed",)


def test_unreadable_files_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.pt").write_text("not a checkpoint")
    (tmp_path / "text.safetensors").write_text("not a checkpoint")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    torch.save(Evil(), tmp_path / "evil_zip.pt")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(InputError, match="not a readable") as caught:
            build_encoder("vjepa2_1_vit_base_384", str(path), 0)
        assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out


def test_missing_file_and_unknown_backbone_are_named() -> None:
    with pytest.raises(InputError, match=r"no file nowhere\.pt"):
        load_encoder(TINY, "nowhere.pt", 0)
    with pytest.raises(InputError, match="'vit_b' is not one of vjepa2_1_vit_tiny"):
        load_encoder("vit_b", "random", 0)
