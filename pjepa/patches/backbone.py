"""What extraction needs of a backbone: V-JEPA 2.1, an image model of timm or a hub video model.

facts = backbone_facts(config)           # sizes and identity, before any frame is read
backbone = load_backbone(config, facts)
window = backbone.prepared(frames)       # [3, T, crop, crop] from uint8 [T, H, W, 3]
features = backbone.encoded(batch)       # [B, T / tubelet, rows * columns, width]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pjepa.patches.checkpoint import build_encoder, named_variant, weights_id
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.patches.preprocess import Uint8, preprocess
from pjepa.patches.vjepa21 import PATCH, TUBELET, VJEPA21Encoder
from pjepa.ui.console import InputError
from pjepa.ui.device import check_compile, checked_device, tf32


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


class Backbone(ABC):
    """A frozen model on its device; kinds differ in the model, its input and its features."""

    def __init__(self, config: PatchesConfig, facts: BackboneFacts) -> None:
        self.config, self.facts = config, facts
        device = checked_device(config.device, config.precision, "patches.precision")
        self.model = self.built().to(device)
        if config.compile:
            check_compile(device, "patches.compile")
            self.compile()

    @abstractmethod
    def built(self) -> nn.Module:
        """Return the model with its weights, ready to encode."""

    @abstractmethod
    def prepared(self, frames: Uint8) -> Tensor:
        """Return one window's input float32 [3, T, crop, crop] on the CPU, from RGB frames."""

    def features(self, batch: Tensor) -> Tensor:
        """Return what the model makes of prepared windows, [B, steps * cells, width]."""
        return self.model(batch)

    def compile(self) -> None:
        """Have the model compiled when it is first called."""
        self.model.compile()

    @torch.inference_mode()
    def encoded(self, batch: Tensor) -> Tensor:
        """Return features float32 [B, steps, cells, width] of prepared windows.

        Step s starts from frame s times tubelet; cells are in (row, column) order.
        """
        bf16 = self.config.precision == "bf16"
        with tf32(batch.device), torch.autocast(batch.device.type, torch.bfloat16, enabled=bf16):
            features = self.features(batch)
        return features.float().unflatten(1, (-1, self.facts.cells))


def backbone_facts(config: PatchesConfig) -> BackboneFacts:
    """Return the facts of the configured backbone; raise if weights do not fit it."""
    if config.backbone.startswith(TIMM):
        from pjepa.patches.timm import timm_facts as facts_of
    elif config.backbone.startswith(HF):
        from pjepa.patches.hf import hf_facts as facts_of
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
    if config.backbone.startswith(HF):
        from pjepa.patches.hf import HFWindows

        return HFWindows(config, facts)
    return VJEPAWindows(config, facts)


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


class VJEPAWindows(Backbone):
    """A V-JEPA 2.1 encoder."""

    model: VJEPA21Encoder

    def built(self) -> nn.Module:
        config = self.config
        return build_encoder(config.backbone, config.checkpoint, config.seed)

    def prepared(self, frames: Uint8) -> Tensor:
        return preprocess(frames, self.facts.crop, self.config.resampler, self.config.view)

    def compile(self) -> None:
        for block in self.model.blocks:  # alike, so one compilation serves all
            block.compile()
