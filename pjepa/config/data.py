"""`data`: where takes come from and how they are split."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pjepa.config.section import Section


class DemoConfig(Section):
    """The rendered bench-top world; how many takes, how long, and how they look."""

    takes: int = Field(100, ge=6)
    min_s: float = Field(40.0, gt=0)
    max_s: float = Field(90.0, gt=0)
    video_fps: int = Field(16, ge=1)
    video_size: int = Field(128, ge=32)
    val: float = Field(0.1, ge=0, lt=1)
    test: float = Field(0.25, gt=0, lt=1)

    @model_validator(mode="after")
    def ordered(self) -> DemoConfig:
        if self.min_s > self.max_s:
            raise ValueError(f"min_s {self.min_s} is greater than max_s {self.max_s}")
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} + test {self.test} leaves nothing to train on")
        if self.video_size % 2:
            raise ValueError(f"video_size {self.video_size} is odd; H.264 needs an even size")
        return self


class DataConfig(Section):
    """`order: shuffled` keeps every segment and breaks the procedures (falsification)."""

    source: Literal["demo"] = "demo"
    seed: int = Field(0, ge=0)
    order: Literal["procedure", "shuffled"] = "procedure"
    holdout: float = Field(0.1, gt=0, lt=1)
    workers: int = Field(2, ge=1)
    demo: DemoConfig = DemoConfig()
