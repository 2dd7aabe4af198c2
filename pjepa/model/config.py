"""Settings of the encoder: sizes, attention, positions and input normalisation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from pjepa.core.section import Section, SegmentKind

AttentionMode = Literal["clip_causal", "block_causal", "token_causal", "bidirectional"]
InputNorm = Literal["none", "standardize", "take_center", "causal_center"]


class EncoderSettings(Section):
    """The encoder's part of the `pjepa` section; defaults are the paper's (Sec. 3.2)."""

    # width and heads from the release
    width: int = Field(1408, ge=8)
    depth: int = Field(4, ge=1)
    heads: int = Field(16, ge=1)
    mlp_ratio: float = Field(4.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)  # none in the paper; for small data
    attention: AttentionMode = "clip_causal"
    block: int = Field(64, ge=1)  # tokens of a block_causal block and of a fixed segment
    segments: SegmentKind = "annotated"  # whose c(i); the others need no annotation
    found_tokens: int = Field(32, ge=1)  # mean length of found segments
    found_max: int = Field(128, ge=1)  # and the longest: how far ahead attention can see
    positions: Literal["2d", "1d", "none"] = "2d"
    rope: Literal["paired", "tiled"] = "paired"
    rope_base: float = Field(10000.0, gt=1)
    rope_segment: int | None = Field(None, ge=0)  # d_S, channels a head turns with c(i);
    rope_offset: int | None = Field(None, ge=0)  # d_T, with r(i); d_0 is the rest; null: halves
    project: Literal["auto", "always"] = "auto"  # auto: only if the width changes (paper)
    # Unlike the paper, which takes features as stored (none): without centring, prediction learns
    # what is constant over a take, its camera and light (docs/ablation.md has the numbers).
    input_norm: InputNorm = "causal_center"
    style_rank: int = Field(64, ge=0)  # axes along which causal_center removes a take's style
    style_look: float = Field(12.0, gt=0)  # tokens that count as one independent look

    @model_validator(mode="after")
    def segments_fit_attention(self) -> Self:
        if self.found_max < self.found_tokens:
            raise ValueError(
                f"found_max {self.found_max} is less than found_tokens {self.found_tokens}"
            )
        return self

    @model_validator(mode="after")
    def heads_fit(self) -> Self:
        self.check_heads("heads", self.heads)
        return self

    @property
    def uses_segments(self) -> bool:
        """Return whether c(i) enters at all: through attention, or through positions."""
        return self.attention == "clip_causal" or self.positions == "2d"

    def centres_takes(self) -> bool:
        """Return whether `input_norm` removes what is constant in a take."""
        return self.input_norm in ("take_center", "causal_center")

    def check_heads(self, name: str, heads: int) -> None:
        """Raise unless `heads` divide the width and have room for the rotary channels."""
        if self.width % heads:
            raise ValueError(
                f"{name} {heads} does not divide width {self.width}; "
                f"allowed: a divisor of {self.width}"
            )
        channels = self.width // heads
        if self.positions != "none" and channels < 2:
            raise ValueError(f"{name} {heads} leaves one channel a head; rotary positions need two")
        by_segment, by_offset = self.rope_segment or 0, self.rope_offset or 0
        if by_segment % 2 or by_offset % 2:
            raise ValueError(
                f"rope_segment {self.rope_segment} and rope_offset {self.rope_offset} must be "
                "even: channels turn in pairs"
            )
        if by_segment + by_offset > channels:
            raise ValueError(
                f"rope_segment {self.rope_segment} + rope_offset {self.rope_offset} exceed the "
                f"{channels} channels of a head ({name})"
            )


class EncoderConfig(EncoderSettings):
    """Everything needed to rebuild the encoder; stored beside its weights."""

    d_in: int = Field(ge=1)
    input_norm: InputNorm = "none"
    style_rank: int = Field(0, ge=0)
