"""`patches`: the frozen backbone and how video is cut for it (paper Sec. 3.1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.core.machine import MachineSection
from pjepa.core.section import CropView, ReaderName, Resampler, WindowMode, WindowScope

TIMM = "timm:"  # `timm:NAME` is an image model that reads frame by frame
HF = "hf:"  # `hf:NAME` is a video model of the Hugging Face hub (pjepa[hf])
VJEPA_PATCH = 16  # pixels a side


def tubelet_of(backbone: str) -> int:
    """Return frames per time step: 2 for a video model, 1 for an image model."""
    return 1 if backbone.startswith(TIMM) else 2


class PatchesConfig(MachineSection):
    """Backbone, sampling and windows; `checkpoint: random` means seeded random weights, `official`
    the backbone's released file; `crop: 0` is the backbone's own input size; `grid: 0` keeps every
    patch.
    """

    purpose: ClassVar[str] = "The frozen backbone and how video is cut for it (paper Sec. 3.1)."
    tuned: ClassVar[tuple[str, ...]] = (
        "backbone",
        "checkpoint",
        "fps",
        "frames_per_window",
        "crop",
        "window_scope",
        "window_mode",
        "reader",
        "on_error",
        "grid",
        "batch_windows",
        "threads",
        "precision",
    )

    backbone: str = "vjepa2_1_vit_giant_384"
    checkpoint: str = "official"
    seed: int = Field(0, ge=0)
    fps: float = Field(8.0, gt=0)
    frames_per_window: int = Field(64, ge=1)
    crop: int = Field(0, ge=0)
    resampler: Resampler = "cv2"
    view: CropView = "center"  # others keep the short side
    window_scope: WindowScope = "segment"
    window_mode: WindowMode = "block"  # trailing: a window ends with its tokens
    window_stride: int = Field(1, ge=1)  # tokens kept of a trailing window
    reader: ReaderName = "auto"
    on_error: Literal["fail", "repeat", "skip"] = "fail"  # skip: leaves takes out; repeat: frames
    grid: int = Field(0, ge=0)
    batch_windows: int = Field(4, ge=1)
    threads: int = Field(1, ge=1)  # its own: another number encodes every video again
    executor: Literal["local", "ray"] = Field("local", exclude=True)
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: autocast, features stay fp16 on disk
    compile: bool = False

    @property
    def tubelet(self) -> int:
        """Return frames per time step of the backbone."""
        return tubelet_of(self.backbone)

    @property
    def tokens_fps(self) -> float:
        """Return time steps per second."""
        return self.fps / self.tubelet

    @property
    def steps(self) -> int:
        """Return time steps in a window."""
        return self.frames_per_window // self.tubelet

    @model_validator(mode="after")
    def whole_steps(self) -> PatchesConfig:
        if self.frames_per_window % self.tubelet:
            raise ValueError(
                f"frames_per_window {self.frames_per_window} is not a multiple of {self.tubelet}, "
                f"the frames in one time step of {self.backbone}"
            )
        if self.window_stride > self.steps:
            raise ValueError(
                f"window_stride {self.window_stride} is longer than a window of {self.steps} steps"
            )
        if self.backbone.startswith((TIMM, HF)) and self.view != "center":
            raise ValueError(f"view {self.view} is V-JEPA 2.1's; other backbones crop the centre")
        if self.backbone.startswith((TIMM, HF)) or not self.crop:
            return self  # only the model knows its grid; the loader checks it
        if self.crop % VJEPA_PATCH:
            raise ValueError(f"crop {self.crop} is not a multiple of the patch size {VJEPA_PATCH}")
        side = self.crop // VJEPA_PATCH
        if self.grid > side:
            raise ValueError(f"grid {self.grid} is finer than the {side} patches a side")
        return self
