"""`tokens`: the token stream that everything downstream reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pjepa.config.section import Section


class TokensConfig(Section):
    """`fps` is tokens per second for every pooler (paper Sec. 4: 4 fps)."""

    fps: float = Field(4.0, gt=0)
    dtype: Literal["float16", "float32"] = "float16"
