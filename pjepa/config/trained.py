"""The trained probes' sections of `probe`; defaults are the supplement's tables."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pjepa.config.fact import FactConfig
from pjepa.config.ltcontext import LTCausalConfig, LTContextConfig
from pjepa.config.section import Section


class TrainedConfig(Section):
    """How a trained probe is trained; each probe has its own defaults."""

    optimizer: Literal["adamw", "adam"] = "adamw"  # adam: weight decay is part of the gradient
    epochs: int = Field(30, ge=1)
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["step", "cosine"] = "step"
    milestones: tuple[int, ...] = (5, 15)  # step: epochs at which lr falls by gamma
    gamma: float = Field(0.1, gt=0, le=1)
    constant_epochs: int = Field(0, ge=0)  # cosine: epochs before it begins
    lr_min: float = Field(0.0, ge=0)  # cosine: where it ends
    clip_grad: float = Field(0.0, ge=0)  # 0: not clipped
    batch_takes: int = Field(1, ge=1)


class ForegroundConfig(TrainedConfig):
    """The release's EgoProceL probe: which step, and whether there is one (two affine heads)."""


class AttentiveConfig(TrainedConfig):
    """The streaming attentive probe, as on EgoProceL.

    EgoExo4D: window 320, chunk 64, width 1280. `chunk_attention: chunk` lets the tokens of a chunk
    see each other in both directions, so a token looks ahead to the end of its chunk; `causal` does
    not look ahead.
    """

    window: int = Field(400, ge=1)  # tokens seen, the chunk included
    chunk: int = Field(128, ge=1)  # tokens predicted from one window
    chunk_attention: Literal["causal", "chunk"] = "causal"
    width: int = Field(1408, ge=1)
    depth: int = Field(1, ge=1)
    heads: int = Field(4, ge=1)
    mlp_ratio: float = Field(4.0, gt=0)
    dropout: float = Field(0.2, ge=0, lt=1)
    lr: float = Field(1e-4, gt=0)
    weight_decay: float = Field(0.005, ge=0)
    milestones: tuple[int, ...] = (10, 20)

    @model_validator(mode="after")
    def fits(self) -> AttentiveConfig:
        if self.chunk > self.window:
            raise ValueError(f"chunk {self.chunk} does not fit in window {self.window}")
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class LTContextProbeConfig(LTContextConfig, TrainedConfig):
    """LTContext with its training."""


class LTCausalProbeConfig(LTCausalConfig, TrainedConfig):
    """LT-Causal with its training."""


class FactProbeConfig(FactConfig, TrainedConfig):
    """FACT with its training: Adam, one take per step, gradients clipped."""

    optimizer: Literal["adamw", "adam"] = "adam"
    clip_grad: float = Field(10.0, ge=0)
