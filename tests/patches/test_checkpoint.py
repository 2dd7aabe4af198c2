"""Weights: official nesting, seeded random ones, `pjepa convert`, and refusals in one line."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner, Result

from pjepa.patches.backbone import backbone_facts, load_backbone
from pjepa.patches.checkpoint import (
    build_encoder,
    encoder_from_file,
    random_encoder,
    read_checkpoint,
    read_metadata,
    tensors_id,
    weights_file,
    weights_id,
    write_port,
)
from pjepa.patches.config import PatchesConfig
from pjepa.patches.vjepa21 import VARIANTS, Variant
from pjepa.storage.hub import CACHE
from pjepa.storage.roots import DATA_ROOT
from pjepa.tools.cli import app
from pjepa.ui.console import InputError

FOLDER = Path(__file__).parents[1] / "golden/vjepa21"
GOLDEN = load_file(FOLDER / "fake_ckpt_io.safetensors")
TINY = "vjepa2_1_vit_tiny"
BASE = "vjepa2_1_vit_base_384"
DIST, LARGE = "fake_vjepa2_1_vitb_dist_style.pt", "fake_vjepa2_1_vitg_style.pt"
FAKES = {DIST: "ema_encoder", LARGE: "target_encoder"}


@pytest.fixture(autouse=True)
def variants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The golden files as variants of their own, and caches that hold nothing."""
    for name, key in FAKES.items():
        small = Variant(8, 12, 1, 32, (2, 5, 8, 11), file=name, encoder_key=key)
        monkeypatch.setitem(VARIANTS, name.removesuffix(".pt"), small)
    monkeypatch.setenv(DATA_ROOT, str(tmp_path / "data"))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path


def tiny_state(seed: int = 0) -> dict[str, Tensor]:
    return random_encoder(VARIANTS[TINY], seed).state_dict()


@torch.no_grad()
@pytest.mark.parametrize("name", FAKES)
def test_official_file_gives_official_features(name: str) -> None:
    encoder = encoder_from_file(name.removesuffix(".pt"), FOLDER / name)
    video = GOLDEN[f"{name}/input"]
    out = encoder(video)
    assert (out - GOLDEN[f"{name}/out"]).abs().max() <= 1e-5
    assert (encoder.hierarchical(video) - GOLDEN[f"{name}/hier"]).abs().max() <= 1e-5
    image = encoder(video[:, :, :1])
    assert (image - GOLDEN[f"{name}/out_img_first_frame"]).abs().max() <= 1e-5
    assert (out - GOLDEN[f"{name}/out_if_student_loaded_by_mistake"]).abs().max() > 1e-3


@pytest.mark.parametrize("name", FAKES)
def test_official_file_in_the_cache_is_found_by_extraction(name: str, variants: Path) -> None:
    """The path of the real files: `checkpoint: official`, the variant's name, nothing else."""
    video = GOLDEN[f"{name}/input"][..., :32]  # square, as extraction makes them
    config = PatchesConfig(backbone=name.removesuffix(".pt"), crop=32)
    with pytest.raises(InputError, match=rf"{name} of .* run `pjepa fetch .*cache/checkpoints/"):
        backbone_facts(config)
    cached = variants / "cache" / "checkpoints" / name
    cached.parent.mkdir(parents=True)
    cached.write_bytes((FOLDER / name).read_bytes())
    backbone = load_backbone(config)
    out = backbone.encoded(video)
    assert out.shape == (1, 2, 4, 8)
    official = encoder_from_file(config.backbone, FOLDER / name)  # golden, see above
    assert torch.equal(out.flatten(1, 2), official(video))


def test_files_are_looked_for_where_the_docs_say(
    variants: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(variants)
    name, fake = "x.safetensors", DIST.removesuffix(".pt")
    folders = ["torch/hub/checkpoints", "cache/checkpoints", "data/checkpoints", "data", "."]
    for folder in folders:  # each goes before the ones already there
        path = variants / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        assert weights_file(fake, name).resolve() == path
    assert weights_file(fake, str(variants / "cache/checkpoints" / name)) == (
        variants / "cache/checkpoints" / name
    )
    port = variants / "cache" / "checkpoints" / f"{fake}.safetensors"
    (port.parent / DIST).write_bytes(b"")
    assert weights_file(fake, "official").name == DIST
    port.write_bytes(b"")
    assert weights_file(fake, "official") == port


def convert(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["convert", *arguments])


def test_port_goes_to_the_cache_and_is_the_official_file_from_then_on(variants: Path) -> None:
    name, source = DIST.removesuffix(".pt"), FOLDER / DIST
    found = convert(str(source), "--backbone", name)
    assert found.exit_code == 0, found.output
    port = variants / "cache/checkpoints" / f"{name}.safetensors"
    assert f"{port}: " in found.stdout
    assert port.stat().st_size < 0.7 * source.stat().st_size  # the fake's optimiser is a stub
    stated = read_metadata(port)
    assert (stated["variant"], stated["heads"], stated["source"]) == (name, 1, DIST)
    assert stated["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    identity = weights_id(name, str(source), 0)
    assert stated["weights_id"] == identity == weights_id(name, "official", 0)
    assert identity in found.stdout
    before, after = (build_encoder(name, c, 0).state_dict() for c in (str(source), "official"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    first = port.read_bytes()
    (port.parent / DIST).write_bytes(source.read_bytes())  # as `pjepa fetch` leaves it
    convert("official", "--backbone", name)
    assert port.read_bytes() == first
    changed = {**before, "video_mod_embed": before["video_mod_embed"] + 1e-6}
    write_port(port, changed, {"variant": name, "heads": 1})
    assert weights_id(name, "official", 0) != identity


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        (FOLDER / DIST, ("--backbone", BASE), f"released file of {DIST[:-3]}"),
        (FOLDER / DIST, ("--backbone", TINY, "--out", "x.pt"), "a port is a .safetensors file"),
        (FOLDER / DIST, ("--backbone", "vit"), "'vit' is not one of"),
        ("gone.pt", ("--backbone", TINY), "no file gone.pt"),
        (f"{TINY}.safetensors", ("--backbone", TINY), "is such a port already"),
    ],
)
def test_bad_arguments_of_convert_end_in_one_line(
    variants: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: object,
    options: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(variants)
    port = Path("cache/checkpoints") / f"{TINY}.safetensors"
    port.parent.mkdir(parents=True)
    save_file(tiny_state(), port)
    found = convert(str(source), *options)
    assert found.exit_code == 1
    assert reason in found.stderr
    assert found.stderr.count("\n") == 1
    assert list(Path().glob("**/*.safetensors")) == [port]


def test_written_port_is_plain_safetensors(variants: Path) -> None:
    first, second = variants / "a.safetensors", variants / "b.safetensors"
    state = {**tiny_state(), "scalar": torch.tensor(2.5), "half": torch.ones(3).bfloat16()}
    write_port(first, state, {"variant": TINY})
    write_port(second, dict(reversed(state.items())), {"variant": TINY})
    assert first.read_bytes() == second.read_bytes()
    loaded = load_file(first)
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    assert tensors_id(loaded) == tensors_id(state)


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
    assert weights_id(TINY, "random", 5) == "random-vjepa2_1_vit_tiny-5"


def test_file_of_another_variant_is_refused(variants: Path) -> None:
    with pytest.raises(InputError, match=r"'target_encoder', found .*file of another variant"):
        build_encoder(LARGE.removesuffix(".pt"), str(_renamed(DIST, variants)), 0)
    with pytest.raises(InputError, match=rf"the released file of {DIST[:-3]}, .* is {BASE}"):
        build_encoder(BASE, str(FOLDER / DIST), 0)
    reason = rf"does not fit {BASE}.* is \[.*width 8 and depth 12 are those of fake_"
    with pytest.raises(InputError, match=reason):
        build_encoder(BASE, str(_renamed(DIST, variants)), 0)


def _renamed(name: str, folder: Path) -> Path:
    path = folder / "renamed.pt"
    path.write_bytes((FOLDER / name).read_bytes())
    return path


@pytest.mark.parametrize(
    ("change", "stated", "reason"),
    [
        ({}, {"variant": BASE}, f"its variant is '{BASE}', {TINY} has '{TINY}'"),
        ({}, {"variant": TINY, "heads": 16}, f"its heads is 16, {TINY} has 4"),
        ({"norms_block.0.bias": None}, {}, "norms_block.0.bias is missing$"),
        ({"extra": torch.ones(2)}, {}, "extra is unknown$"),
        ({"img_mod_embed": torch.ones(1, 1, 65)}, {}, r"img_mod_embed is \[1, 1, 65\] instead of"),
        ({"img_mod_embed": torch.full((1, 1, 64), float("nan"))}, {}, "not finite"),
        ({"img_mod_embed": torch.ones(1, 1, 64, dtype=torch.int64)}, {}, "not finite"),
        (
            {"video_mod_embed": None, "img_mod_embed": None, "norm.weight": torch.ones(64)},
            {},
            "a V-JEPA 2 file",
        ),
        (
            {"encoder.embeddings.patch_embeddings.proj.bias": torch.ones(64)},
            {},
            "Hugging Face port",
        ),
    ],
)
def test_almost_right_ports_are_refused(
    variants: Path, change: dict[str, Tensor | None], stated: dict[str, Any], reason: str
) -> None:
    path = variants / "port.safetensors"
    state = {k: v for k, v in {**tiny_state(), **change}.items() if v is not None}
    write_port(path, state, stated)
    with pytest.raises(InputError, match=reason):
        build_encoder(TINY, str(path), 0)


def test_a_port_that_names_no_variant_is_taken_and_said(
    variants: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(tiny_state(), variants / "port.safetensors")
    build_encoder(TINY, str(variants / "port.safetensors"), 0)
    assert "names no variant" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"encoder": {}, "opt": {}}, "found encoder, opt: it holds the student alone"),
        ({"epoch": 3}, "found epoch: so it is no training checkpoint"),
        ({"patch_embed.proj.bias": torch.ones(8)}, "no training checkpoint of V-JEPA 2.1"),
        ([1, 2], "holds a list"),
    ],
)
def test_other_torch_files_are_refused(variants: Path, content: object, reason: str) -> None:
    path = variants / "other.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match=reason):
        build_encoder(BASE, str(path), 0)


def test_files_of_old_torch_are_read(variants: Path) -> None:
    path = variants / "old.pth"
    torch.save({"a": torch.arange(3.0)}, path, _use_new_zipfile_serialization=False)
    assert read_checkpoint(path)["a"].tolist() == [0.0, 1.0, 2.0]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("executed",)


def test_unreadable_files_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.pt").write_text("not a checkpoint")
    (tmp_path / "text.safetensors").write_text("not a checkpoint")
    (tmp_path / "cut.pt").write_bytes((FOLDER / DIST).read_bytes()[:-4000])
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    torch.save(Evil(), tmp_path / "evil_zip.pt")
    for path in sorted(tmp_path.glob("*.*")):
        with pytest.raises(InputError, match=r"not a (safetensors|torch) ") as caught:
            build_encoder(BASE, str(path), 0)
        assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out


def test_missing_file_and_unknown_backbone_are_named() -> None:
    with pytest.raises(InputError, match=r"no file nowhere\.pt; put it at .*checkpoints/nowhere"):
        weights_id(TINY, "nowhere.pt", 0)
    with pytest.raises(InputError, match="'vit_b' is not one of vjepa2_1_vit_tiny"):
        weights_id("vit_b", "random", 0)
    with pytest.raises(InputError, match="has no released weights; set it to random"):
        weights_id(TINY, "official", 0)
