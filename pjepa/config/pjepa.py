"""`pjepa`: the self-supervised model and its training (paper Sec. 3.2, Sec. 4)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pjepa.config.section import Section

Attention = Literal["clip_causal", "block_causal", "token_causal", "bidirectional"]
InputNorm = Literal["none", "standardize", "take_center", "causal_center"]
Segments = Literal["annotated", "fixed", "found", "ruptures"]


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
    block: int = Field(64, ge=1)  # tokens of a block_causal block and of a fixed segment
    segments: Segments = "annotated"  # whose c(i); the others need no annotation
    found_tokens: int = Field(32, ge=1)  # mean length of found segments
    found_max: int = Field(128, ge=1)  # and the longest: how far ahead attention can see
    positions: Literal["2d", "1d", "none"] = "2d"
    rope: Literal["paired", "tiled"] = "paired"
    rope_base: float = Field(10000.0, gt=1)
    rope_segment: int | None = Field(None, ge=0)  # d_S, channels a head turns with c(i);
    rope_offset: int | None = Field(None, ge=0)  # d_T, with r(i); d_0 is the rest; null: halves
    project: Literal["auto", "always"] = "auto"  # auto: only if the width changes (paper)
    # Unlike the paper, which takes features as stored (none): without centring, prediction learns
    # what a take keeps all along, its camera and light (docs/pretraining.md has the numbers).
    input_norm: InputNorm = "causal_center"
    style_rank: int = Field(64, ge=0)  # axes along which causal_center removes a take's style
    style_look: float = Field(12.0, gt=0)  # tokens that count as one independent look

    # Objective (Eq. 2)
    masking: Literal["tokens", "segments"] = "tokens"  # segments: hides them whole
    mask_ratio: float = Field(0.8, gt=0, lt=1)
    target_norm: Literal["none", "layer"] = "none"
    loss_reduction: Literal["mean", "sum"] = "mean"
    ema: float = Field(0.999, ge=0, lt=1)

    # Optimisation (Sec. 4)
    epochs: int = Field(1000, ge=0)
    lr: float = Field(1e-4, gt=0)
    weight_decay: float = Field(0.04, ge=0)
    decay: Literal["all", "matrices"] = "all"  # matrices: not on biases, norms, mask token
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

    # Running
    init_from: str | None = None  # release:NAME, a folder or a hub id; epochs 0 keeps it as it is
    seed: int = Field(0, ge=0)
    snapshot_every: int = Field(100, ge=1)
    threads: int = Field(2, ge=1)
    device: str = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    checkpoint_activations: bool = False  # recompute them backward: long takes, less memory
    processes: int = Field(1, ge=1)  # devices, or processes on the CPU

    @model_validator(mode="after")
    def segments_fit_attention(self) -> PjepaConfig:
        if self.found_max < self.found_tokens:
            raise ValueError(
                f"found_max {self.found_max} is less than found_tokens {self.found_tokens}"
            )
        return self

    @model_validator(mode="after")
    def rotary_channels_fit(self) -> PjepaConfig:
        for name in ("heads", "predictor_heads"):
            by_segment, by_offset = self.rope_segment, self.rope_offset
            if (by_segment or 0) % 2 or (by_offset or 0) % 2:
                raise ValueError(
                    f"rope_segment {by_segment} and rope_offset {by_offset} must be even: "
                    "channels turn in pairs"
                )
            head = self.width // getattr(self, name)
            if (by_segment or 0) + (by_offset or 0) > head:
                raise ValueError(
                    f"rope_segment {by_segment} + rope_offset {by_offset} exceed the {head} "
                    f"channels of a head ({name})"
                )
        return self

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
