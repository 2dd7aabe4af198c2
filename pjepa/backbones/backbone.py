"""What extraction needs of a backbone, whichever it is: V-JEPA 2.1 or a timm image model.

facts = backbone_facts(config)           # sizes and identity, before any frame is read
backbone = load_backbone(config, facts)
window = backbone.prepared(frames)       # [3, T, crop, crop] from uint8 [T, H, W, 3]
features = backbone.encoded(batch)       # [B, T / tubelet, rows * columns, width]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from pjepa.config.patches import TIMM, PatchesConfig
from pjepa.errors import InputError

if TYPE_CHECKING:
    from pjepa.video.preprocess import Uint8


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
        """One window's input float32 [3, T, crop, crop] on the CPU, from RGB [T, H, W, 3]."""
        ...

    def encoded(self, batch: Tensor) -> Tensor:
        """Features float32 [B, T / tubelet, cells, width] of windows [B, 3, T, crop, crop]."""
        ...


def backbone_facts(config: PatchesConfig) -> BackboneFacts:
    """The facts of the configured backbone; weights that do not fit it are refused."""
    if config.backbone.startswith(TIMM):
        from pjepa.backbones.timm_frames import timm_facts as facts_of
    else:
        from pjepa.backbones.vjepa_windows import vjepa_facts as facts_of
    facts = facts_of(config)
    if config.grid > min(facts.rows, facts.columns):
        raise InputError(
            f"patches.grid {config.grid} is finer than the {facts.rows} x {facts.columns} cells "
            f"that {facts.name} gives at {facts.crop} px"
        )
    return facts


def load_backbone(config: PatchesConfig, facts: BackboneFacts | None = None) -> Backbone:
    """The configured backbone on its device; known `facts` save reading the weights twice."""
    facts = facts or backbone_facts(config)
    if config.backbone.startswith(TIMM):
        from pjepa.backbones.timm_frames import TimmFrames

        return TimmFrames(config, facts)
    from pjepa.backbones.vjepa_windows import VJEPAWindows

    return VJEPAWindows(config, facts)
