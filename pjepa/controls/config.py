"""`controls`: representations made from the raw stream without learning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pjepa.core.section import Section


class ControlsConfig(Section):
    """Settings of the controls: `smooth_s` is the span of the causal moving average, `time_bins`
    the number of one-hot bins of relative time.
    """

    tuned: ClassVar[tuple[str, ...]] = ("smooth_s",)

    smooth_s: float = Field(4.0, gt=0)
    time_bins: int = Field(50, ge=2)
    time_segments: int = Field(64, ge=2)
    time_waves: int = Field(8, ge=1)
