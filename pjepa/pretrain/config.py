"""`pjepa`: the self-supervised model and its training (paper Sec. 3.2, Sec. 4)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.core.machine import MachineSection, Stream
from pjepa.model.config import EncoderSettings


class PjepaConfig(EncoderSettings, MachineSection):
    """Settings of pretraining; defaults are the paper's, what it leaves open follows the authors'
    release.
    """

    purpose: ClassVar[str] = "The self-supervised model and its training (paper Sec. 3.2, Sec. 4)."
    tuned: ClassVar[tuple[str, ...]] = (
        "width",
        "depth",
        "heads",
        "predictor_depth",
        "predictor_heads",
        "attention",
        "block",
        "segments",
        "positions",
        "input_norm",
        "mask_ratio",
        "ema",
        "neighbours",
        "neighbour_weight",
        "dropout",
        "exchange",
        "epochs",
        "lr",
        "weight_decay",
        "milestones",
        "warmup_steps",
        "batch_tokens",
        "accumulate",
        "init_from",
        "seed",
        "snapshot_every",
        "precision",
        "processes",
    )

    # Architecture beside the encoder's own (Sec. 3.2; heads from the release)
    predictor_depth: int = Field(2, ge=1)
    predictor_heads: int = Field(16, ge=1)

    # Objective (Eq. 2)
    mask_ratio: float = Field(0.8, gt=0, lt=1)
    target_norm: Literal["none", "layer"] = "none"
    loss_reduction: Literal["mean", "sum"] = "mean"
    ema: float = Field(0.999, ge=0, lt=1)
    # Not in the paper: each context token predicts the mean of these neighbouring segments
    neighbours: tuple[int, ...] | None = None  # 0: its own; null: Eq. 2 alone (paper)
    neighbour_weight: float = Field(1.0, gt=0)

    # Optimisation (Sec. 4)
    epochs: int = Field(1000, ge=0)
    lr: float = Field(1e-4, gt=0)
    weight_decay: float = Field(0.04, ge=0)
    milestones: tuple[int, ...] = (500,)
    gamma: float = Field(0.1, gt=0, le=1)
    warmup_steps: int = Field(0, ge=0)
    clip_grad: float = Field(1.0, gt=0)
    batch_tokens: int = Field(16384, ge=1)  # of one forward pass; a longer take is its own
    batch_takes: int | None = Field(None, ge=1)  # of one forward pass
    accumulate: int = Field(1, ge=1)  # forward passes to an optimiser step

    # What an epoch shows of a take; null is the whole of it (Sec. 4), values are the release's
    max_segments: int | None = Field(None, ge=1)  # a random window of so many segments
    max_run: int | None = Field(None, ge=1)  # the first so many tokens of every segment
    crop_tokens: int | None = Field(None, ge=2)  # a random window of so many tokens

    # Unlike the paper: share of segments that an epoch replaces by similar ones of other takes
    exchange: float = Field(0.0, ge=0, le=1)

    # Running
    init_from: str | None = None  # release:NAME, a folder or a hub id; epochs 0 keeps it as it is
    seed: int = Field(0, ge=0)
    snapshot_every: int = Field(100, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    checkpoint_activations: bool = False  # recompute them backward: long takes, less memory
    processes: int = Field(1, ge=1)  # devices, or processes on the CPU
    stream: Stream = Field("auto", exclude=True)

    @model_validator(mode="after")
    def predictor_fits(self) -> PjepaConfig:
        self.check_heads("predictor_heads", self.predictor_heads)
        return self

    @model_validator(mode="after")
    def boundaries_are_the_encoders(self) -> PjepaConfig:
        """Refuse what would make training know boundaries that the encoder does not."""
        places = list(self.neighbours or ())
        if len(set(places)) < len(places):
            raise ValueError(f"neighbours {places} must be different numbers")
        readers = {f"exchange {self.exchange:g}": self.exchange, f"neighbours {places}": places}
        for reader, used in readers.items():
            if used and self.segments == "annotated" and not self.uses_segments:
                raise ValueError(
                    f"{reader} would read annotated segments that attention "
                    f"{self.attention} with positions {self.positions} does not use; "
                    "set segments to fixed or found"
                )
        return self
