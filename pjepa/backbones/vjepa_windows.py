"""V-JEPA 2.1 as a backbone: windows of frames in, patch features per time step out."""

from __future__ import annotations

import torch
from torch import Tensor

from pjepa.backbones.backbone import BackboneFacts
from pjepa.backbones.checkpoint import build_encoder, named_variant, weights_id
from pjepa.backbones.vjepa21 import PATCH, TUBELET
from pjepa.config.patches import PatchesConfig
from pjepa.device import check_compile, checked_device
from pjepa.video.preprocess import Uint8, preprocess


def vjepa_facts(config: PatchesConfig) -> BackboneFacts:
    """Sizes from the variant's table, identity from the weights."""
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
        device = checked_device(config.device)
        self.encoder = build_encoder(config.backbone, config.checkpoint, config.seed).to(device)
        if config.compile:
            check_compile(device, "patches.compile")
            for block in self.encoder.blocks:  # alike, so one compilation serves all
                block.compile()

    def prepared(self, frames: Uint8) -> Tensor:
        """One window's input float32 [3, T, crop, crop] (facts/vjepa21.md, Sec. 4)."""
        return preprocess(frames, self.facts.crop, self.resampler, self.view)

    @torch.inference_mode()
    def encoded(self, batch: Tensor) -> Tensor:
        """Features float32 [B, steps, cells, D]; step s saw frames 2s and 2s + 1 first (Sec. 5)."""
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.bf16):
            features: Tensor = self.encoder(batch)  # [B, N, D], (time, row, column) order
        return features.float().unflatten(1, (-1, self.facts.cells))
