"""What an extraction will take, before it starts: tokens, disk, hours of a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pjepa.backbones.cost import PEAK_TFLOPS, gpu_hours, sizes_alone, stored_bytes, window_flops
from pjepa.backbones.encode import patch_info
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.video.sampling import token_count

Segments = NDArray[np.float64] | None


@dataclass(frozen=True)
class Plan:
    """The size of the work for takes of known length."""

    takes: int
    hours: float
    tokens: int
    windows: int
    flops: float
    stored: float  # bytes

    def rows(self, free: float) -> list[list[str]]:
        """The plan as a table of two columns."""
        gpus = [
            [f"hours of one {gpu}", f"{gpu_hours(self.flops, gpu):,.2f}"] for gpu in PEAK_TFLOPS
        ]
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


def extraction_plan(takes: Sequence[tuple[float, Segments]], config: PatchesConfig) -> Plan:
    """The plan for takes given by their seconds and segments [S, 2]; needs no weights."""
    facts = sizes_alone(config)
    sampling = patch_info(config, facts).sampling
    counts = [token_count(seconds, config.tokens_fps) for seconds, _ in takes]
    windows = sum(
        len(sampling.windows(count, segments))
        for count, (_, segments) in zip(counts, takes, strict=True)
    )
    return Plan(
        takes=len(takes),
        hours=sum(seconds for seconds, _ in takes) / 3600,
        tokens=sum(counts),
        windows=windows,
        flops=windows * window_flops(config, facts),
        stored=stored_bytes(sum(counts), config, facts),
    )


def free_bytes(folder: Path) -> int:
    """Free space where the folder is or will be."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def check_disk(needed: float, folder: Path) -> None:
    """Refuses to start what the disk cannot hold."""
    free = free_bytes(folder)
    if needed > free:
        raise InputError(
            f"patches: {needed / 1e9:.1f} GB of features to write, {free / 1e9:.1f} GB free at "
            f"{folder}; free some space, or pool to a smaller patches.grid (1 is the mean)"
        )
