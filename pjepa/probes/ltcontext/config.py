"""LTContext and its training; LT-Causal builds on it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from pjepa.probes.base.config import TrainedConfig


class LTContextConfig(TrainedConfig):
    """LTContext and its training, one take per step; defaults are the supplement's Assembly101
    table, what it leaves open is official (`gamma`: the paper's factor elsewhere).

    Where the official Assembly101 setting differs, it is given in brackets. `attention_dropout` and
    `output_dropout` are official only (the second is fixed in the official code). So is
    `instance_norm`: the official flag acts inverted, so its "true" (all published results) is off.
    Official training is Adam with weight decay 1e-3, 120 epochs, cosine after 15 of them to 5e-5.
    """

    purpose: ClassVar[str] = "LTContext and its training; LT-Causal builds on it."
    tuned: ClassVar[tuple[str, ...]] = (
        "epochs",
        "lr",
        "stages",
        "layers",
        "width",
        "window",
        "stride",
    )

    # Architecture
    stages: int = Field(4, ge=1)
    layers: int = Field(9, ge=1)  # per stage
    width: int = Field(128, ge=2)  # of stage 1 [64]
    reduction: int = Field(1, ge=1)  # later stages are width / reduction wide [2]
    window: int = Field(16, ge=2)  # W: query frames per window, 2W keys around them [64]
    stride: int = Field(64, ge=1)  # G: frames between two keys of the long-term attention
    dilation: int = Field(4, ge=1)  # layer i reaches dilation^i frames [2]
    heads: int = Field(1, ge=1)
    instance_norm: bool | None = None  # before attention, over time; null: as its authors train it

    # Dropout, while training
    dropout: float = Field(0.2, ge=0, lt=1)  # after a layer
    channel_masking: float = Field(0.3, ge=0, lt=1)  # whole input channels of every stage
    attention_dropout: float = Field(0.2, ge=0, lt=1)  # of the attention weights
    output_dropout: float = Field(0.1, ge=0, lt=1)  # after an attention's output map

    # Loss
    smoothing: float = Field(0.17, ge=0)
    clip: float = Field(16.0, gt=0)  # of the squared step of log-probabilities

    # Training
    lr: float = Field(2.5e-4, gt=0)
    milestones: tuple[int, ...] = (10, 20)

    @model_validator(mode="after")
    def possible(self) -> LTContextConfig:
        if self.window % 2 and not self.release:
            raise ValueError(f"window {self.window} must be even")
        for width in (self.width, self.later_width):
            if width < 2 or width // 2 % self.heads:
                raise ValueError(f"heads {self.heads} must divide half the width of {width}")
        return self

    @property
    def release(self) -> bool:
        """Return whether attention follows the P-JEPA release instead of LTContext."""
        return False

    @property
    def normalised(self) -> bool:
        """Return whether attention sees frames normalised over the whole take."""
        return self.release if self.instance_norm is None else self.instance_norm

    @property
    def later_width(self) -> int:
        """Return the width of all stages after the first."""
        return self.width // self.reduction


CONFIG = LTContextConfig
