"""`features`: representations made by the encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pjepa.config.section import Section


class FeaturesConfig(Section):
    """`random_draws` untrained encoders of the same shape are exported as the control `random`."""

    dtype: Literal["float16", "float32"] = "float16"
    random_draws: int = Field(3, ge=1)
    random_seed: int = Field(1000, ge=0)
    threads: int = Field(2, ge=1)
    device: str = "cpu"
