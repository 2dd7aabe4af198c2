"""What tests say of patch features where it does not matter what made them."""

from typing import Any

from pjepa.patches.store import PatchInfo

TINY: dict[str, Any] = {
    "backbone": "tiny", "weights_id": "w", "fps": 8.0, "tokens_fps": 4.0, "tubelet": 2,
    "frames_per_window": 16, "window_scope": "take", "crop": 16, "resampler": "cv2", "grid": 1,
    "rows": 1, "columns": 1, "width": 2,
}  # fmt: skip


def patch_info(**changes: Any) -> PatchInfo:
    """Windows of 8 steps over takes, one cell of width 2, or what is changed."""
    return PatchInfo(**TINY | changes)
