"""What extraction needs of a backbone: V-JEPA 2.1, an image model of timm or a hub video model.

facts = backbone_facts(config)           # sizes and identity, before any frame is read
backbone = load_backbone(config, facts)
window = backbone.prepared(frames)       # [3, T, crop, crop] from uint8 [T, H, W, 3]
features = backbone.encoded(batch)       # [B, T / tubelet, rows * columns, width]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.ui.errors import InputError

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
        from pjepa.patches.timm_frames import timm_facts as facts_of
    elif config.backbone.startswith(HF):
        from pjepa.patches.vjepa_windows import hf_facts as facts_of
    else:
        from pjepa.patches.vjepa_windows import vjepa_facts as facts_of
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
        from pjepa.patches.timm_frames import TimmFrames

        return TimmFrames(config, facts)
    from pjepa.patches.vjepa_windows import HFWindows, VJEPAWindows

    kind = HFWindows if config.backbone.startswith(HF) else VJEPAWindows
    return kind(config, facts)
