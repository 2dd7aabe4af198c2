"""`features`: representations made by the encoder."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pjepa.core.machine import Placed


class FeaturesConfig(Placed):
    """Settings of the export; `random_draws` untrained encoders of the same shape give the control
    `random`.
    """

    tuned: ClassVar[tuple[str, ...]] = ("dtype", "random_draws")

    dtype: Literal["float16", "float32"] = "float16"
    random_draws: int = Field(3, ge=1)
    random_seed: int = Field(1000, ge=0)
