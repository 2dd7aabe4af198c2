"""What an extraction will take, before it starts: tokens, disk, hours of a GPU."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pjepa.core.time_grid import token_count
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import PEAK_TFLOPS, gpu_hours, sizes_alone, stored_bytes, window_flops
from pjepa.patches.encode import patch_info
from pjepa.patches.identity import open_take
from pjepa.patches.preprocess import preprocess
from pjepa.ui.errors import InputError

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
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def check_disk(needed: float, folder: Path) -> None:
    """Refuse to start what the disk cannot hold."""
    free = free_bytes(folder)
    if needed > free:
        raise InputError(
            f"patches: {needed / 1e9:.1f} GB of features to write, {free / 1e9:.1f} GB free at "
            f"{folder}; free some space, or pool to a smaller patches.grid (1 is the mean)"
        )
