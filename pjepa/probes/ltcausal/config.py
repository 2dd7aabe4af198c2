"""`probe.ltcausal`: LT-Causal and its training."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.probes.ltcontext.config import LTContextConfig


class LTCausalConfig(LTContextConfig):
    """LT-Causal and its training; defaults are the supplement's EgoProceL table ("Causal
    LTContext"), the rest is LTContext's.

    `kind: strict` is LTContext made causal, as the paper writes it. `release` is what the authors'
    code computes: a query's window is |i - j| <= W, keys come from the stage before like values,
    attention has no `output_dropout`, and `instance_norm` is on, which lets every frame see the
    whole take.
    """

    purpose: ClassVar[str] = "LT-Causal and its training."
    tuned: ClassVar[tuple[str, ...]] = (*LTContextConfig.tuned, "kind")

    stages: int = Field(3, ge=1)
    layers: int = Field(6, ge=1)
    reduction: int = Field(2, ge=1)
    dilation: int = Field(2, ge=1)
    milestones: tuple[int, ...] = (15, 25)
    block: int | None = Field(None, ge=1)  # frames per fixed segment; null: given segments are used
    kind: Literal["strict", "release"] = "strict"

    @model_validator(mode="after")
    def causal(self) -> LTCausalConfig:
        if self.normalised and not self.release:
            raise ValueError("instance_norm sees the whole take; only kind release may have it")
        return self

    @property
    def release(self) -> bool:
        return self.kind == "release"


CONFIG = LTCausalConfig
