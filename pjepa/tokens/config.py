"""`tokens`: the token stream that everything downstream reads."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pjepa.core.machine import MachineSection

Gaps = Literal["keep", "drop"]
Overlap = Literal["duplicate", "clip", "fail"]


class TokensConfig(MachineSection):
    """Settings of the token stream; `fps` is tokens per second for every pooler (paper Sec. 4: 4
    fps).

    Unlike the paper, whose takes are their annotated segments and nothing else, time outside them
    is kept as context that nothing scores: to drop it, annotations are needed at test time too.
    """

    purpose: ClassVar[str] = "The token stream that everything downstream reads."
    tuned: ClassVar[tuple[str, ...]] = ("fps", "dtype", "gaps", "overlap")

    fps: float = Field(4.0, gt=0)
    dtype: Literal["float16", "float32"] = "float16"
    gaps: Gaps = "keep"  # drop: the take is its annotated segments laid end to end (Sec. 3.1)
    overlap: Overlap = "clip"  # end where the next begins; duplicate: a token for each (release)
