"""`probe.fact`: FACT and its training."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from pjepa.probes.base.config import TrainedConfig


class FactConfig(TrainedConfig):
    """FACT and its training; defaults are the P-JEPA supplement's table, what it leaves open is
    FACT's EgoProceL file.

    FACT's own name of a setting is given in brackets where ours differs.
    """

    purpose: ClassVar[str] = "FACT and its training."
    tuned: ClassVar[tuple[str, ...]] = ("epochs", "lr", "blocks", "tokens", "hidden")

    # Architecture: MS-TCN++ frames, no positions of frames, one token per segment
    blocks: str = Field("iUUU", pattern="^i[uU]+$")  # i input, u update, U update on runs (TDU)
    tokens: int = Field(200, ge=1)  # action tokens, at least the segments of a take [ntoken]
    hidden: int = Field(512, ge=4)  # width between the branches [hid_dim]
    dropout: float = Field(0.0, ge=0, lt=1)  # in every branch
    channel_mask: float = Field(0.3, ge=0, lt=1)  # of the input; "cross-mask ratio" there [cmr]
    frame_dim: int = Field(256, ge=1)
    frame_layers: int = Field(10, ge=1)  # of block i
    update_frame_layers: int = Field(10, ge=1)  # of blocks u and U
    action_dim: int = Field(256, ge=1)
    action_heads: int = Field(8, ge=1)
    action_ffn: int = Field(512, ge=1)
    action_layers: int = Field(6, ge=1)  # of block i: self and cross attention ("SCA")
    update_action_layers: int = Field(1, ge=1)  # of blocks u and U: self attention ("SA")
    segment_layers: int = Field(1, ge=1)  # of the GRU over runs [s_layers]

    # Matching and losses
    class_cost: float = Field(0.2, ge=0)  # [pc]
    overlap_cost: float = Field(1.0, ge=0)  # [a2fc]
    background_weight: float = Field(0.5, ge=0)  # [bgw]
    null_weight: float | None = Field(None, ge=0)  # of unused tokens; null: from the next [nullw]
    average_segments: float = Field(21.5, ge=0)  # per take; EgoProceL's own mean
    smooth_weight: float = Field(5.0, ge=0)  # [sw]
    align_segment_weights: bool = False  # true: a segment's weight follows it through the match

    # Inference
    merge_weight: float = Field(0.9, ge=0, le=1)  # of the frames; "matching weight" there [mwt]

    # Training, one take per step
    optimizer: Literal["adamw", "adam"] = "adam"
    epochs: int = Field(150, ge=1)  # official: 350
    lr: float = Field(1e-4, gt=0)
    milestones: tuple[int, ...] = (100,)  # official: 250
    clip_grad: float = Field(10.0, ge=0)

    @model_validator(mode="after")
    def possible(self) -> Self:
        if self.action_dim % self.action_heads:
            raise ValueError("action_dim must be a multiple of action_heads")
        if self.hidden % 2 or self.action_dim > self.hidden:
            raise ValueError("hidden must be even and not below action_dim")
        if self.null_weight is None and self.tokens <= self.average_segments:
            raise ValueError("tokens must exceed average_segments, or set null_weight")
        return self

    def null_weight_for(self, classes: int) -> float:
        """Return the weight that balances the unused tokens against one class."""
        if self.null_weight is not None:
            return self.null_weight
        return self.tokens / ((self.tokens - self.average_segments) * classes)


CONFIG = FactConfig
