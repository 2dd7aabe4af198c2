"""What extraction costs before it starts: floating-point work, disk, hours of a GPU.

    work of a window = layers x (8 N D^2 + 4 N D M + 4 N^2 D) + patch embedding
    N = time steps x cells, D = width, M = MLP width;  a multiply-add counts as two

The second term of the attention, N^2, is most of it for long windows (facts/vjepa21.md, Sec. 8).
"""

from __future__ import annotations

from pjepa.backbones.backbone import BackboneFacts, backbone_facts
from pjepa.backbones.checkpoint import RANDOM, named_variant
from pjepa.backbones.vjepa21 import PATCH
from pjepa.config.patches import TIMM, PatchesConfig

HALF = 2  # bytes of a stored value
UTILISATION = 0.3  # of the peak; 0.29 was measured for ViT-g in bf16 on a GH200 (Sec. 8)
PEAK_TFLOPS = {"L4": 121.0, "RTX 4090": 165.0, "A100": 312.0, "H100": 989.0}  # bf16, dense


def sizes_alone(config: PatchesConfig) -> BackboneFacts:
    """The backbone's facts but for its weights: for plans made before they are fetched."""
    return backbone_facts(config.model_copy(update={"checkpoint": RANDOM}))


def window_flops(config: PatchesConfig, facts: BackboneFacts) -> float:
    """Floating-point operations to encode one window."""
    if config.backbone.startswith(TIMM):
        from pjepa.backbones.timm_frames import frame_flops

        return config.frames_per_window * frame_flops(config, facts.crop)
    variant = named_variant(config.backbone)
    width, tokens = variant.width, config.frames_per_window // facts.tubelet * facts.cells
    layer = 8 * tokens * width**2 + 4 * tokens * width * variant.mlp_hidden + 4 * tokens**2 * width
    embedding = 2 * tokens * width * 3 * facts.tubelet * PATCH**2
    return float(variant.depth * layer + embedding)


def stored_bytes(steps: float, config: PatchesConfig, facts: BackboneFacts) -> float:
    """Bytes of that many time steps in the store, after pooling to `patches.grid`."""
    cells = config.grid**2 if config.grid else facts.cells
    return steps * cells * facts.width * HALF


def windows_per_hour(config: PatchesConfig) -> float:
    """Windows in an hour of video, one after the other."""
    return 3600 * config.fps / config.frames_per_window


def bytes_per_hour(config: PatchesConfig, facts: BackboneFacts) -> float:
    """Bytes on disk for an hour of video."""
    return stored_bytes(3600 * config.tokens_fps, config, facts)


def gpu_hours(flops: float, gpu: str = "A100") -> float:
    """Hours of one GPU in bf16 at the assumed utilisation; decoding is assumed to keep up."""
    return flops / (PEAK_TFLOPS[gpu] * 1e12 * UTILISATION) / 3600


def video_hours_per_gpu_hour(
    config: PatchesConfig, facts: BackboneFacts, gpu: str = "A100"
) -> float:
    """Hours of video that one GPU encodes in an hour."""
    return 1 / gpu_hours(windows_per_hour(config) * window_flops(config, facts), gpu)


def hourly_costs(config: PatchesConfig, grids: tuple[int, ...]) -> dict[str, float]:
    """Work of a window, GB per hour of video for each grid, hours of video per hour of each GPU."""
    facts = sizes_alone(config)
    found = {"TFLOP per window": window_flops(config, facts) / 1e12}
    for grid in grids:
        name = f"{facts.rows} x {facts.columns}" if grid == 0 else f"{grid} x {grid}"
        pooled = config.model_copy(update={"grid": grid})
        found[f"GB/h, {name}"] = bytes_per_hour(pooled, facts) / 1e9
    for gpu in PEAK_TFLOPS:
        found[f"h/h, {gpu}"] = video_hours_per_gpu_hour(config, facts, gpu)
    return found
