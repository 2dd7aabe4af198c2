"""`patches`: the frozen backbone and how video is cut for it (paper Sec. 3.1)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pjepa.config.section import Section

TUBELET = 2  # frames per temporal step of V-JEPA


class PatchesConfig(Section):
    """`checkpoint: random` means seeded random weights; `grid: 0` keeps every patch."""

    backbone: str = "vjepa2_1_vit_giant_384"
    checkpoint: str = "random"
    seed: int = Field(0, ge=0)
    fps: float = Field(8.0, gt=0)
    frames_per_window: int = Field(64, ge=2)
    crop: int = Field(384, ge=16)
    resampler: Literal["cv2", "antialias"] = "cv2"
    window_scope: Literal["segment", "take"] = "segment"
    window_mode: Literal["block", "trailing"] = "block"  # trailing: a window ends with its tokens
    window_stride: int = Field(1, ge=1)  # tokens kept of a trailing window
    grid: int = Field(0, ge=0)
    batch_windows: int = Field(4, ge=1)
    workers: int = Field(1, ge=1)
    threads: int = Field(1, ge=1)
    device: str = "cpu"

    @model_validator(mode="after")
    def whole_steps(self) -> PatchesConfig:
        if self.frames_per_window % TUBELET:
            raise ValueError(
                f"frames_per_window {self.frames_per_window} is not a multiple of {TUBELET}"
            )
        if self.window_stride > self.frames_per_window // TUBELET:
            raise ValueError(
                f"window_stride {self.window_stride} is longer than the window of "
                f"{self.frames_per_window // TUBELET} steps"
            )
        if self.crop % 16:
            raise ValueError(f"crop {self.crop} is not a multiple of the patch size 16")
        if self.grid > self.crop // 16:
            raise ValueError(f"grid {self.grid} is finer than the {self.crop // 16} patches a side")
        return self
