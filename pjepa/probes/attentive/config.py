"""`probe.attentive`: the streaming attentive probe."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.probes.base.config import TrainedConfig


class AttentiveConfig(TrainedConfig):
    """The streaming attentive probe, as on EgoProceL.

    EgoExo4D: window 320, chunk 64, width 1280. `chunk_attention: chunk` lets the tokens of a chunk
    see each other in both directions, so a token looks ahead to the end of its chunk; `causal` does
    not look ahead.
    """

    purpose: ClassVar[str] = "the streaming attentive probe."
    tuned: ClassVar[tuple[str, ...]] = ("epochs", "lr", "window", "chunk", "width")

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


CONFIG = AttentiveConfig
