"""Video models in the hub's format, read by transformers: V-JEPA 2 and VideoMAE.

`hf:facebook/vjepa2-vitl-fpc64-256` is looked for as a folder of that name where checkpoints are
looked for, then on the hub. No code of a repository is ever run.

Transformers has V-JEPA 2, whose rotary positions differ from those of V-JEPA 2.1. A port of 2.1
that its class would load gives wrong features without an error, so whatever names itself 2.1, or
whose tensors are not exactly the model's, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pjepa.patches.backbone import Backbone, BackboneFacts
from pjepa.patches.checkpoint import RANDOM, tensors_id
from pjepa.patches.config import HF, PatchesConfig
from pjepa.patches.preprocess import MEAN, STD, Uint8, preprocess
from pjepa.patches.vjepa21 import TUBELET
from pjepa.storage.hub import checkpoint_folders, hub_errors
from pjepa.storage.reading import read_object
from pjepa.ui.console import InputError, first_line

FILES = ["config.json", "*preprocessor_config.json", "model.safetensors", "model-*.safetensors",
         "model.safetensors.index.json"]  # fmt: skip
# Tensors that features do not use: V-JEPA's predictor, VideoMAE's decoder, heads of either.
UNUSED = ("predictor.", "decoder.", "encoder_to_decoder.", "mask_token", "position_embeddings",
          "classifier.", "pooler.", "fc_norm.")  # fmt: skip


@dataclass(frozen=True)
class VideoShape:
    """Sizes and preprocessing of a model, from its config alone."""

    kind: str  # vjepa2 or videomae
    width: int
    depth: int
    mlp: int  # width of the hidden layer
    side: int  # patches a side
    crop: int  # pixels
    frames: int | None  # of every window; None where any number will do
    short: int  # short side of a frame before the crop, pixels
    mean: tuple[float, ...]
    std: tuple[float, ...]


def hf_facts(config: PatchesConfig) -> BackboneFacts:
    """Return sizes from the model's config, identity from its weights."""
    name = config.backbone.removeprefix(HF)
    shape = video_shape(name)
    if config.crop not in (0, shape.crop):
        raise InputError(f"patches.crop {config.crop}: {config.backbone} takes {shape.crop} px")
    if shape.frames not in (None, config.frames_per_window):
        raise InputError(
            f"patches.frames_per_window {config.frames_per_window}: {config.backbone} takes "
            f"{shape.frames}"
        )
    identity = f"{RANDOM}-{config.backbone}-{config.seed}"
    if config.checkpoint != RANDOM:
        identity = tensors_id(video_model(name).state_dict())
    side = shape.side
    return BackboneFacts(config.backbone, identity, shape.width, side, side, TUBELET, shape.crop)


class HFWindows(Backbone):
    """A video model of transformers."""

    def built(self) -> nn.Module:
        name = self.config.backbone.removeprefix(HF)
        self.shape = video_shape(name)
        return video_model(name, self.config.seed if self.config.checkpoint == RANDOM else None)

    def prepared(self, frames: Uint8) -> Tensor:
        shape, resampler = self.shape, self.config.resampler
        return preprocess(
            frames, shape.crop, resampler, short=shape.short, mean=shape.mean, std=shape.std
        )

    def features(self, batch: Tensor) -> Tensor:
        """Return patch features [B, N, D] in (time, row, column) order."""
        options = {"skip_predictor": True} if self.shape.kind == "vjepa2" else {}
        return self.model(batch.transpose(1, 2), **options).last_hidden_state


def video_shape(name: str) -> VideoShape:
    """Return the sizes of the model of that name; a kind that is not known is refused."""
    folder = model_folder(name)
    stated = read_object(folder / "config.json")
    kind = stated.get("model_type")
    if kind not in ("vjepa2", "videomae"):
        raise InputError(
            f"{HF}{name}: is a {kind!r} model; hf: reads vjepa2 and videomae (images: timm:NAME)"
        )
    if kind == "vjepa2" and any(mark in f"{name} {stated}" for mark in ("2.1", "2_1", "21-")):
        raise InputError(
            f"{HF}{name}: calls itself V-JEPA 2.1, but transformers implements V-JEPA 2; use the "
            "released weights, patches.backbone vjepa2_1_vit_..._384 (`pjepa fetch --list`)"
        )
    config = _config(folder)
    if config.tubelet_size != TUBELET:
        raise InputError(f"{HF}{name}: {config.tubelet_size} frames per step, expected {TUBELET}")
    files, jepa = sorted(folder.glob("*preprocessor_config.json")), kind == "vjepa2"
    norms = read_object(files[0]) if files else {}
    crop = int(config.crop_size if jepa else config.image_size)
    return VideoShape(
        kind=kind,
        width=config.hidden_size,
        depth=config.num_hidden_layers,
        mlp=int(config.hidden_size * config.mlp_ratio) if jepa else config.intermediate_size,
        side=crop // config.patch_size,
        crop=crop,
        frames=None if jepa else config.num_frames,  # its positions are a table
        short=int(crop * 256 / 224) if jepa else crop,
        mean=tuple(norms.get("image_mean", MEAN)),
        std=tuple(norms.get("image_std", STD)),
    )


def video_model(name: str, seed: int | None = None) -> nn.Module:
    """Return the frozen model with its weights, or with random ones of a seed."""
    transformers = _transformers()
    folder = model_folder(name, weights=seed is None)
    kinds = {"vjepa2": transformers.VJEPA2Model, "videomae": transformers.VideoMAEModel}
    kind = kinds[video_shape(name).kind]
    if seed is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _frozen(kind(_config(folder)))
    try:
        model, report = kind.from_pretrained(
            folder, output_loading_info=True, local_files_only=True, trust_remote_code=False,
            use_safetensors=True, dtype=torch.float32,
        )  # fmt: skip
    except Exception as error:  # the library raises many kinds
        raise InputError(f"{folder}: cannot be loaded ({first_line(error)})") from None
    _refuse_misfits(name, report)
    return _frozen(model)


def model_folder(name: str, weights: bool = False) -> Path:
    """Return the folder of a model: one of that name on this machine, else the hub's copy."""
    for folder in checkpoint_folders():
        if (folder / name / "config.json").is_file():
            return folder / name
    from huggingface_hub import snapshot_download

    hint = f"put the repository's files into {checkpoint_folders()[3] / name}"
    with hub_errors(f"{HF}{name}: not on this machine, and the hub did not answer", hint):
        return Path(snapshot_download(name, allow_patterns=FILES if weights else FILES[:2]))


def _refuse_misfits(name: str, report: dict[str, Any]) -> None:
    """Refuse a file that lacks a tensor of the features or has one too many."""
    for state in ("missing", "unexpected", "mismatched"):  # the last come with their shapes
        entries = report.get(f"{state}_keys") or ()
        keys = [str(entry if isinstance(entry, str) else entry[0]) for entry in entries]
        bare = [key.removeprefix("videomae.").removeprefix("vjepa2.") for key in keys]
        if odd := sorted(key for key in bare if not key.startswith(UNUSED)):
            raise InputError(
                f"{HF}{name}: {len(odd)} {state} tensors such as {odd[0]}: not a model of its "
                "stated kind"
            )


def _frozen(model: nn.Module) -> nn.Module:
    for name in ("predictor", "decoder"):
        if hasattr(model, name):
            delattr(model, name)  # features do not use it
    return model.float().eval().requires_grad_(False)


def _config(folder: Path) -> Any:
    return _transformers().AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError("hf: backbones need transformers; install pjepa[hf]") from None
    return transformers
