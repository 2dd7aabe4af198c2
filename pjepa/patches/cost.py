"""What extraction costs before it starts: floating-point work, disk, hours of a GPU.

    work of a window = layers x (8 N D^2 + 4 N D M + 4 N^2 D) + patch embedding
    N = time steps x cells, D = width, M = MLP width;  a multiply-add counts as two

The second term of the attention, N^2, is most of it for long windows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pjepa.core.time import token_count
from pjepa.patches.backbone import BackboneFacts, backbone_facts
from pjepa.patches.checkpoint import RANDOM, named_variant
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.patches.encode import open_take, patch_info
from pjepa.patches.preprocess import preprocess
from pjepa.ui.console import InputError

HALF = 2  # bytes of a stored value
UTILISATION = 0.3  # of the peak; 0.29 was measured for ViT-g in bf16 on a GH200
PEAK_TFLOPS = {"L4": 121.0, "RTX 4090": 165.0, "A100": 312.0, "H100": 989.0}  # bf16, dense


def sizes_alone(config: PatchesConfig) -> BackboneFacts:
    """Return the backbone's facts without its weights, for plans before they are fetched."""
    return backbone_facts(config.model_copy(update={"checkpoint": RANDOM}))


def window_flops(config: PatchesConfig, facts: BackboneFacts) -> float:
    """Return floating-point operations to encode one window."""
    if config.backbone.startswith(TIMM):
        from pjepa.patches.timm import frame_flops

        return config.frames_per_window * frame_flops(config, facts.crop)
    width, tokens = facts.width, config.frames_per_window // facts.tubelet * facts.cells
    depth, mlp = _layers(config.backbone)
    layer = 8 * tokens * width**2 + 4 * tokens * width * mlp + 4 * tokens**2 * width
    embedding = 2 * tokens * width * 3 * facts.tubelet * (facts.crop // facts.rows) ** 2
    return float(depth * layer + embedding)


def _layers(backbone: str) -> tuple[int, int]:
    """Return layers of a video model and the hidden width of their MLPs."""
    if backbone.startswith(HF):
        from pjepa.patches.hf import video_shape

        shape = video_shape(backbone.removeprefix(HF))
        return shape.depth, shape.mlp
    variant = named_variant(backbone)
    return variant.depth, variant.mlp_hidden


def stored_bytes(steps: float, config: PatchesConfig, facts: BackboneFacts) -> float:
    """Return bytes of that many time steps in the store, after pooling to `patches.grid`."""
    cells = config.grid**2 if config.grid else facts.cells
    return steps * cells * facts.width * HALF


def gpu_hours(flops: float, gpu: str = "A100") -> float:
    """Return hours of one GPU in bf16 at the assumed utilisation, decoding keeping up."""
    return flops / (PEAK_TFLOPS[gpu] * 1e12 * UTILISATION) / 3600


def hourly_costs(config: PatchesConfig, grids: tuple[int, ...]) -> dict[str, float]:
    """Return work of a window, GB per hour for each grid, hours of video per GPU hour."""
    facts, hour = sizes_alone(config), extraction_plan([(3600.0, None)], config)
    costs = {"TFLOP per window": hour.flops / hour.windows / 1e12}
    for grid in grids:
        name = f"{facts.rows} x {facts.columns}" if grid == 0 else f"{grid} x {grid}"
        pooled = config.model_copy(update={"grid": grid})
        costs[f"GB/h, {name}"] = stored_bytes(hour.tokens, pooled, facts) / 1e9
    return costs | {f"h/h, {gpu}": 1 / gpu_hours(hour.flops, gpu) for gpu in PEAK_TFLOPS}


# What an extraction will take, before it starts: tokens, disk, hours of a GPU.

SegmentBounds = NDArray[np.float64] | None


@dataclass(frozen=True)
class ExtractionPlan:
    """The size of the work for takes of known length."""

    takes: int
    hours: float
    tokens: int
    windows: int
    flops: float
    stored: float  # bytes

    def rows(self, free: float, decoding: float | None = None) -> list[list[str]]:
        """Return the plan as a table of two columns; `decoding`: hours to read all videos."""
        hours = {gpu: gpu_hours(self.flops, gpu) for gpu in PEAK_TFLOPS}
        gpus = [[f"hours of one {gpu}", f"{needed:,.2f}"] for gpu, needed in hours.items()]
        if decoding is not None:
            slower = [gpu for gpu, needed in hours.items() if decoding > needed]
            limit = f"decoding with {', '.join(slower)}" if slower else "encoding"
            gpus += [["hours to decode here", f"{decoding:,.2f}"], ["limited by", limit]]
        return [
            ["takes", f"{self.takes:,}"],
            ["hours of video", f"{self.hours:,.2f}"],
            ["tokens", f"{self.tokens:,}"],
            ["windows", f"{self.windows:,}"],
            ["TFLOP", f"{self.flops / 1e12:,.1f}"],
            *gpus,
            ["GB to store", f"{self.stored / 1e9:,.3f}"],
            ["GB free", f"{free / 1e9:,.3f}"],
        ]


def extraction_plan(
    takes: Sequence[tuple[float, SegmentBounds]], config: PatchesConfig
) -> ExtractionPlan:
    """Return the plan for takes given by their seconds and segments [S, 2]; needs no weights."""
    facts = sizes_alone(config)
    sampling = patch_info(config, facts).sampling
    counts = [token_count(seconds, config.tokens_fps) for seconds, _ in takes]
    windows = sum(
        len(sampling.windows(count, segments))
        for count, (_, segments) in zip(counts, takes, strict=True)
    )
    return ExtractionPlan(
        takes=len(takes),
        hours=sum(seconds for seconds, _ in takes) / 3600,
        tokens=sum(counts),
        windows=windows,
        flops=windows * window_flops(config, facts),
        stored=stored_bytes(sum(counts), config, facts),
    )


def decoding_share(video: Path, config: PatchesConfig) -> float:
    """Return seconds that one thread needs here to read and prepare a second of this video.

    Measured on the second window, or the first if there is no other: the first opens the file.
    """
    facts = sizes_alone(config)
    sampling, spent = patch_info(config, facts).sampling, 0.0
    with open_take(video, config) as reader:
        steps = token_count(reader.info.duration_s, sampling.tokens_fps)
        for window in sampling.windows(steps)[:2]:
            started = time.perf_counter()
            preprocess(reader.frames(sampling.frame_times(window)), facts.crop, config.resampler)
            spent = (time.perf_counter() - started) * sampling.tokens_fps / window.tokens
    return spent


def free_bytes(folder: Path) -> int:
    """Return free space where the folder is or will be."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free


def check_disk(needed: float, folder: Path) -> None:
    """Refuse to start what the disk cannot hold."""
    free = free_bytes(folder)
    if needed > free:
        raise InputError(
            f"patches: {needed / 1e9:.1f} GB of features to write, {free / 1e9:.1f} GB free at "
            f"{folder}; free some space, or pool to a smaller patches.grid (1 is the mean)"
        )
