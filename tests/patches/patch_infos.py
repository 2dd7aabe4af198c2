"""What tests say of patch features where it does not matter what made them, and a tiny backbone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.patches.backbone import BackboneFacts, backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, OnFrames, Outcome, encoded_job
from pjepa.patches.store import PatchInfo, read_patches

TINY: dict[str, Any] = {
    "backbone": "tiny", "weights_id": "w", "fps": 8.0, "tokens_fps": 4.0, "tubelet": 2,
    "frames_per_window": 16, "window_scope": "take", "crop": 16, "resampler": "cv2", "grid": 1,
    "rows": 1, "columns": 1, "width": 2,
}  # fmt: skip


def patch_info(**changes: Any) -> PatchInfo:
    """Windows of 8 steps over takes, one cell of width 2, or what is changed."""
    return PatchInfo(**TINY | changes)


def tiny_config(**changes: Any) -> PatchesConfig:
    """Windows of 4 steps through the smallest V-JEPA, with random weights."""
    values = {"backbone": "vjepa2_1_vit_tiny", "checkpoint": "random", "frames_per_window": 8}
    return PatchesConfig.model_validate({**values, "crop": 32, "grid": 1, **changes})


def inline(
    jobs: list[Job], config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Iterator[Outcome]:
    """The executor without processes."""
    for job in jobs:
        yield encoded_job(job, config, facts, on_frames)


def features(path: Path, config: PatchesConfig, limits: np.ndarray | None = None) -> np.ndarray:
    """The features of one video, encoded in this process."""
    target = path.with_suffix(".safetensors")
    target.unlink(missing_ok=True)
    job = Job("x", path.name, path, 0.0, limits, target)
    (outcome,) = inline([job], config, backbone_facts(config), lambda frames: None)
    assert outcome.reason is None, outcome.reason
    return np.array(read_patches(target).patches)
