"""What extraction costs before it starts: floating-point work, disk, hours of a GPU.

    work of a window = layers x (8 N D^2 + 4 N D M + 4 N^2 D) + patch embedding
    N = time steps x cells, D = width, M = MLP width;  a multiply-add counts as two

The second term of the attention, N^2, is most of it for long windows.
"""

from __future__ import annotations

from pjepa.patches.backbone import BackboneFacts, backbone_facts
from pjepa.patches.checkpoint import RANDOM, named_variant
from pjepa.patches.config import HF, TIMM, PatchesConfig

HALF = 2  # bytes of a stored value
UTILISATION = 0.3  # of the peak; 0.29 was measured for ViT-g in bf16 on a GH200
PEAK_TFLOPS = {"L4": 121.0, "RTX 4090": 165.0, "A100": 312.0, "H100": 989.0}  # bf16, dense


def sizes_alone(config: PatchesConfig) -> BackboneFacts:
    """Return the backbone's facts without its weights, for plans before they are fetched."""
    return backbone_facts(config.model_copy(update={"checkpoint": RANDOM}))


def window_flops(config: PatchesConfig, facts: BackboneFacts) -> float:
    """Return floating-point operations to encode one window."""
    if config.backbone.startswith(TIMM):
        from pjepa.patches.timm_frames import frame_flops

        return config.frames_per_window * frame_flops(config, facts.crop)
    width, tokens = facts.width, config.frames_per_window // facts.tubelet * facts.cells
    depth, mlp = _layers(config.backbone)
    layer = 8 * tokens * width**2 + 4 * tokens * width * mlp + 4 * tokens**2 * width
    embedding = 2 * tokens * width * 3 * facts.tubelet * (facts.crop // facts.rows) ** 2
    return float(depth * layer + embedding)


def _layers(backbone: str) -> tuple[int, int]:
    """Return layers of a video model and the hidden width of their MLPs."""
    if backbone.startswith(HF):
        from pjepa.patches.hf.video_models import video_shape

        shape = video_shape(backbone.removeprefix(HF))
        return shape.depth, shape.mlp
    variant = named_variant(backbone)
    return variant.depth, variant.mlp_hidden


def stored_bytes(steps: float, config: PatchesConfig, facts: BackboneFacts) -> float:
    """Return bytes of that many time steps in the store, after pooling to `patches.grid`."""
    cells = config.grid**2 if config.grid else facts.cells
    return steps * cells * facts.width * HALF


def windows_per_hour(config: PatchesConfig) -> float:
    """Return windows in an hour of video, one after the other."""
    return 3600 * config.fps / config.frames_per_window


def bytes_per_hour(config: PatchesConfig, facts: BackboneFacts) -> float:
    """Return bytes on disk for an hour of video."""
    return stored_bytes(3600 * config.tokens_fps, config, facts)


def gpu_hours(flops: float, gpu: str = "A100") -> float:
    """Return hours of one GPU in bf16 at the assumed utilisation, decoding keeping up."""
    return flops / (PEAK_TFLOPS[gpu] * 1e12 * UTILISATION) / 3600


def video_hours_per_gpu_hour(
    config: PatchesConfig, facts: BackboneFacts, gpu: str = "A100"
) -> float:
    """Return hours of video that one GPU encodes in an hour."""
    return 1 / gpu_hours(windows_per_hour(config) * window_flops(config, facts), gpu)


def hourly_costs(config: PatchesConfig, grids: tuple[int, ...]) -> dict[str, float]:
    """Return work of a window, GB per hour for each grid, hours of video per GPU hour."""
    facts = sizes_alone(config)
    found = {"TFLOP per window": window_flops(config, facts) / 1e12}
    for grid in grids:
        name = f"{facts.rows} x {facts.columns}" if grid == 0 else f"{grid} x {grid}"
        pooled = config.model_copy(update={"grid": grid})
        found[f"GB/h, {name}"] = bytes_per_hour(pooled, facts) / 1e9
    for gpu in PEAK_TFLOPS:
        found[f"h/h, {gpu}"] = video_hours_per_gpu_hour(config, facts, gpu)
    return found
