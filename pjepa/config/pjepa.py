"""`pjepa`: the self-supervised model and its training (paper Sec. 3.2, Sec. 4)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pjepa.config.section import Section

Attention = Literal["clip_causal", "block_causal", "token_causal", "bidirectional"]
InputNorm = Literal["none", "standardize", "take_center", "causal_center"]


class PjepaConfig(Section):
    """Defaults are the paper's; what it leaves open follows the authors' release."""

    # Architecture (Sec. 3.2; width and heads from the release)
    width: int = Field(1408, ge=8)
    depth: int = Field(4, ge=1)
    heads: int = Field(16, ge=1)
    predictor_depth: int = Field(2, ge=1)
    predictor_heads: int = Field(16, ge=1)
    mlp_ratio: float = Field(4.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)  # none in the paper; for small data
    attention: Attention = "clip_causal"
    block: int = Field(64, ge=1)
    positions: Literal["2d", "1d", "none"] = "2d"
    rope: Literal["paired", "tiled"] = "paired"
    rope_base: float = Field(10000.0, gt=1)
    project: Literal["auto", "always"] = "auto"  # auto: only if the width changes (paper)
    input_norm: InputNorm = "none"
    style_rank: int = Field(64, ge=0)  # axes along which causal_center removes a take's style
    style_look: float = Field(12.0, gt=0)  # tokens that count as one independent look

    # Objective (Eq. 2)
    mask_ratio: float = Field(0.8, gt=0, lt=1)
    target_norm: Literal["none", "layer"] = "none"
    loss_reduction: Literal["mean", "sum"] = "mean"
    ema: float = Field(0.999, ge=0, lt=1)

    # Optimisation (Sec. 4)
    epochs: int = Field(1000, ge=0)
    lr: float = Field(1e-4, gt=0)
    weight_decay: float = Field(0.04, ge=0)
    milestones: tuple[int, ...] = (500,)
    gamma: float = Field(0.1, gt=0, le=1)
    warmup_steps: int = Field(0, ge=0)
    clip_grad: float = Field(1.0, gt=0)
    batch_tokens: int = Field(16384, ge=1)

    # Running
    seed: int = Field(0, ge=0)
    snapshot_every: int = Field(100, ge=1)
    threads: int = Field(2, ge=1)
    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"

    @model_validator(mode="after")
    def heads_divide_width(self) -> PjepaConfig:
        for name in ("heads", "predictor_heads"):
            heads = getattr(self, name)
            if self.width % heads:
                raise ValueError(
                    f"{name} {heads} does not divide width {self.width}; "
                    f"allowed: a divisor of {self.width}"
                )
            if self.positions != "none" and self.width // heads < 4:
                raise ValueError(
                    f"{name} {heads} leaves {self.width // heads} channels a head; "
                    "rotary positions need at least 4"
                )
        return self
