"""What extraction needs of a backbone: V-JEPA 2.1, an image model of timm or a hub video model.

facts = backbone_facts(config)           # sizes and identity, before any frame is read
backbone = load_backbone(config, facts)
window = backbone.prepared(frames)       # [3, T, crop, crop] from uint8 [T, H, W, 3]
features = backbone.encoded(batch)       # [B, T / tubelet, rows * columns, width]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from pjepa.patches.checkpoint import RANDOM, build_encoder, named_variant, tensors_id, weights_id
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.patches.hf import features, video_model, video_shape
from pjepa.patches.preprocess import (
    Geometry,
    Uint8,
    preprocess,
    resized_crop_antialias,
    resized_crop_cv2,
    scaled_size,
)
from pjepa.patches.vjepa21 import PATCH, TUBELET
from pjepa.ui.console import InputError
from pjepa.ui.device import check_compile, checked_device, tf32

if TYPE_CHECKING:
    from pjepa.patches.preprocess import Uint8


@dataclass(frozen=True)
class BackboneFacts:
    """What is known of a backbone before it encodes; equal facts mean equal features."""

    name: str
    weights_id: str  # names the weights themselves: equal ids mean equal tensors
    width: int
    rows: int  # of the patch grid, before `patches.grid` pools it
    columns: int
    tubelet: int  # frames per time step
    crop: int  # side of the square input, pixels

    @property
    def cells(self) -> int:
        return self.rows * self.columns


class Backbone(Protocol):
    """A frozen model on its device."""

    facts: BackboneFacts

    def prepared(self, frames: Uint8) -> Tensor:
        """Return one window's input float32 [3, T, crop, crop] on the CPU, from RGB frames."""
        ...

    def encoded(self, batch: Tensor) -> Tensor:
        """Return features float32 [B, T / tubelet, cells, width] of prepared windows."""
        ...


def backbone_facts(config: PatchesConfig) -> BackboneFacts:
    """Return the facts of the configured backbone; raise if weights do not fit it."""
    if config.backbone.startswith(TIMM):
        from pjepa.patches.timm import timm_facts as facts_of
    elif config.backbone.startswith(HF):
        facts_of = hf_facts
    else:
        facts_of = vjepa_facts
    facts = facts_of(config)
    if config.grid > min(facts.rows, facts.columns):
        raise InputError(
            f"patches.grid {config.grid} is finer than the {facts.rows} x {facts.columns} cells "
            f"that {facts.name} gives at {facts.crop} px"
        )
    return facts


def load_backbone(config: PatchesConfig, facts: BackboneFacts | None = None) -> Backbone:
    """Return the configured backbone on its device; `facts` saves a second read of weights."""
    facts = facts or backbone_facts(config)
    if config.backbone.startswith(TIMM):
        from pjepa.patches.timm import TimmFrames

        return TimmFrames(config, facts)

    kind = HFWindows if config.backbone.startswith(HF) else VJEPAWindows
    return kind(config, facts)


# Video models as backbones: windows of frames in, patch features per time step out.


def vjepa_facts(config: PatchesConfig) -> BackboneFacts:
    """Return sizes from the variant's table, identity from the weights."""
    variant = named_variant(config.backbone)
    crop = config.crop or variant.crop
    return BackboneFacts(
        name=config.backbone,
        weights_id=weights_id(config.backbone, config.checkpoint, config.seed),
        width=variant.width,
        rows=crop // PATCH,
        columns=crop // PATCH,
        tubelet=TUBELET,
        crop=crop,
    )


class VJEPAWindows:
    """The encoder of a variant, its preprocessing, and how it computes (precision, compile)."""

    def __init__(self, config: PatchesConfig, facts: BackboneFacts) -> None:
        self.facts = facts
        self.resampler, self.view = config.resampler, config.view
        self.bf16 = config.precision == "bf16"
        device = checked_device(config.device, config.precision, "patches.precision")
        self.encoder = build_encoder(config.backbone, config.checkpoint, config.seed).to(device)
        if config.compile:
            check_compile(device, "patches.compile")
            for block in self.encoder.blocks:  # alike, so one compilation serves all
                block.compile()

    def prepared(self, frames: Uint8) -> Tensor:
        """Return one window's input float32 [3, T, crop, crop]."""
        return preprocess(frames, self.facts.crop, self.resampler, self.view)

    @torch.inference_mode()
    def encoded(self, batch: Tensor) -> Tensor:
        """Return features float32 [B, steps, cells, D]; step s starts from frames 2s and 2s + 1."""
        kind = batch.device.type
        with tf32(batch.device), torch.autocast(kind, torch.bfloat16, enabled=self.bf16):
            features: Tensor = self.encoder(batch)  # [B, N, D], (time, row, column) order
        return features.float().unflatten(1, (-1, self.facts.cells))


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
    known = f"{RANDOM}-{config.backbone}-{config.seed}"
    if config.checkpoint != RANDOM:
        known = tensors_id(video_model(name).state_dict())
    side = shape.side
    return BackboneFacts(config.backbone, known, shape.width, side, side, TUBELET, shape.crop)


class HFWindows:
    """A video model of transformers, its preprocessing, and how it computes."""

    def __init__(self, config: PatchesConfig, facts: BackboneFacts) -> None:
        self.facts = facts
        self.shape = video_shape(config.backbone.removeprefix(HF))
        self.resized = resized_crop_cv2 if config.resampler == "cv2" else resized_crop_antialias
        self.bf16 = config.precision == "bf16"
        device = checked_device(config.device, config.precision, "patches.precision")
        seed = config.seed if config.checkpoint == RANDOM else None
        self.model = video_model(config.backbone.removeprefix(HF), seed).to(device)
        if config.compile:
            check_compile(device, "patches.compile")
            self.model.compile()

    def prepared(self, frames: Uint8) -> Tensor:
        """Return a window's input float32 [3, T, crop, crop]: short side resized, centre crop."""
        crop = self.facts.crop
        height, width = scaled_size(frames.shape[1], frames.shape[2], self.shape.short)
        top, left = round((height - crop) / 2), round((width - crop) / 2)
        corner = Geometry(height, width, top, left, crop)
        pixels = torch.from_numpy(self.resized(frames, corner)).permute(3, 0, 1, 2).float()
        mean, std = (torch.tensor(v).view(3, 1, 1, 1) for v in (self.shape.mean, self.shape.std))
        return pixels.div_(255).sub_(mean).div_(std).contiguous()

    @torch.inference_mode()
    def encoded(self, batch: Tensor) -> Tensor:
        """Return features float32 [B, steps, cells, D]."""
        kind = batch.device.type
        with tf32(batch.device), torch.autocast(kind, torch.bfloat16, enabled=self.bf16):
            found = features(self.model, self.shape.kind, batch)  # [B, N, D]
        return found.float().unflatten(1, (-1, self.facts.cells))
