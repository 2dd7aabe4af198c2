"""`features`: representations made by the encoder."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pjepa.core.machine import MachineSection
from pjepa.core.section import Section


class FeaturesConfig(MachineSection):
    """Settings of the export; `random_draws` untrained encoders of the same shape give the control
    `random`.
    """

    purpose: ClassVar[str] = "Representations made by the encoder."
    tuned: ClassVar[tuple[str, ...]] = ("dtype", "random_draws")

    dtype: Literal["float16", "float32"] = "float16"
    random_draws: int = Field(3, ge=1)
    random_seed: int = Field(1000, ge=0)


# `controls`: representations made from the raw stream without learning.


class ControlsConfig(Section):
    """Settings of the controls: `smooth_s` is the span of the causal moving average, `time_bins`
    the number of one-hot bins of relative time.
    """

    purpose: ClassVar[str] = "Representations made from the raw stream without learning."
    tuned: ClassVar[tuple[str, ...]] = ("smooth_s",)

    smooth_s: float = Field(4.0, gt=0)
    time_bins: int = Field(50, ge=2)
    time_segments: int = Field(64, ge=2)
    time_waves: int = Field(8, ge=1)
