"""One take, from its video to its file in the store.

Three things happen at once: a thread decodes and prepares the next windows, this one encodes, and
a third writes what is done. What is written depends on none of it: windows go through the encoder
in their order, in batches that follow from the take alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pjepa.backbones.backbone import Backbone, BackboneFacts, load_backbone
from pjepa.backbones.store import PatchInfo, PatchWriter, patch_writer
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.prefetch import Prefetch, StalledError
from pjepa.video.index import AGAIN, CUT_OFF_S
from pjepa.video.reader import open_video
from pjepa.video.sampling import Window, token_count

PATIENCE_S = 600.0  # a decoder that gives nothing for this long hangs

OnFrames = Callable[[int], None]  # told how many frames were encoded since the last call


@dataclass(frozen=True)
class Job:
    """One take to encode and where its features go; messages call the video `name`."""

    take_id: str
    name: str
    video: Path
    duration_s: float  # that the file must have; 0: any
    boundaries: NDArray[np.float64] | None
    target: Path
    about_s: float = 0.0  # what its header says, for the progress line


@dataclass(frozen=True)
class Outcome:
    """How a take ended: encoded, or not, for one reason in one line."""

    take_id: str
    reason: str | None = None
    stuck: bool = False  # a thread of this process hangs in a decoder: start another process


@dataclass(frozen=True)
class Batch:
    """Prepared windows [B, 3, T, crop, crop] of a take of `steps` tokens."""

    windows: list[Window]
    video: Tensor
    steps: int


@dataclass(frozen=True)
class Arriving:
    """Features on their way from the device, [B, steps, cells, D] fp16."""

    values: Tensor
    arrived: torch.cuda.Event | None

    def array(self) -> NDArray[np.float16]:
        """The values, once they are here."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values.numpy()


def patch_info(config: PatchesConfig, facts: BackboneFacts) -> PatchInfo:
    """What the stored features are."""
    return PatchInfo(
        backbone=facts.name,
        weights_id=facts.weights_id,
        checkpoint=config.checkpoint,
        seed=config.seed,
        precision=config.precision,
        fps=config.fps,
        tokens_fps=config.tokens_fps,
        tubelet=facts.tubelet,
        frames_per_window=config.frames_per_window,
        window_scope=config.window_scope,
        window_mode=config.window_mode,
        window_stride=config.window_stride,
        crop=facts.crop,
        resampler=config.resampler,
        view=config.view,
        grid=config.grid,
        rows=config.grid or facts.rows,
        columns=config.grid or facts.columns,
        width=facts.width,
    )


def encoded_job(
    job: Job, config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Outcome:
    """Encodes a take into its file; a video that cannot be read is an outcome, not an error."""
    if job.target.exists():  # another worker was faster, or died after finishing
        return Outcome(job.take_id)
    torch.set_num_threads(config.threads)
    backbone = _worker_backbone(config, facts)
    info = patch_info(config, facts)
    try:
        with Prefetch(decoded_batches(job, backbone, config, info), 1, PATIENCE_S) as batches:
            write_take(job.target, iter(batches), backbone, config, info, on_frames)
    except StalledError:
        reason = f"{job.name}: the decoder hangs; re-encode this video, or leave the take out"
        return Outcome(job.take_id, reason, stuck=True)
    except InputError as error:  # names the file where it is on this machine: not for artifacts
        return Outcome(job.take_id, str(error).replace(str(job.video), job.name))
    return Outcome(job.take_id)


@lru_cache(maxsize=1)
def _worker_backbone(config: PatchesConfig, facts: BackboneFacts) -> Backbone:
    return load_backbone(config, facts)


def decoded_batches(
    job: Job, backbone: Backbone, config: PatchesConfig, info: PatchInfo
) -> Iterator[Batch]:
    """The take's windows in order, read and prepared; runs on a thread of its own."""
    torch.set_num_threads(1)  # of this thread: the encoder has the others
    sampling = info.sampling
    with open_video(job.video, config.reader) as reader:
        found = reader.info.duration_s
        if found < job.duration_s - CUT_OFF_S:
            raise InputError(
                f"{job.video}: is cut off, {found:.1f} of {job.duration_s:.1f} s are there; {AGAIN}"
            )
        steps = token_count(found, sampling.tokens_fps)
        plan = sampling.windows(steps, job.boundaries)
        for start in range(0, len(plan), config.batch_windows):
            part = plan[start : start + config.batch_windows]
            frames = (reader.frames(sampling.frame_times(window)) for window in part)
            video = torch.stack([backbone.prepared(shown) for shown in frames])
            pinned = video.pin_memory() if config.device.startswith("cuda") else video
            yield Batch(part, pinned, steps)


def write_take(
    target: Path,
    batches: Iterator[Batch],
    backbone: Backbone,
    config: PatchesConfig,
    info: PatchInfo,
    on_frames: OnFrames,
) -> None:
    """Encodes the batches of a take; each is written while the next one is encoded."""
    first = next(batches)
    written: Future[None] | None = None
    with patch_writer(target, info, first.steps) as writer, ThreadPoolExecutor(1) as disk:
        for batch in chain([first], batches):
            features = encoded_batch(backbone, batch.video, config)
            if written is not None:
                written.result()
            written = disk.submit(append_windows, writer, features, batch.windows)
            on_frames(sum(window.tokens for window in batch.windows) * info.tubelet)
        if written is not None:
            written.result()


def append_windows(writer: PatchWriter, features: Arriving, windows: Sequence[Window]) -> None:
    """Writes the steps that each window keeps; padding and context are left out."""
    for window, steps in zip(windows, features.array(), strict=True):
        writer.append(steps[window.place : window.place + window.tokens])


@torch.inference_mode()
def encoded_batch(backbone: Backbone, video: Tensor, config: PatchesConfig) -> Arriving:
    """fp16 features [B, steps, cells, D] of windows [B, 3, T, crop, crop]."""
    facts = backbone.facts
    features = backbone.encoded(video.to(config.device, non_blocking=True))
    pooled = pooled_grid(features.flatten(0, 1), facts.rows, facts.columns, config.grid)
    return arriving(pooled.unflatten(0, (len(video), -1)).half())


def arriving(features: Tensor) -> Arriving:
    """The features in host memory; from a GPU the copy is only begun."""
    if features.device.type != "cuda":
        return Arriving(features.cpu(), None)
    host = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
    host.copy_(features, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return Arriving(host, arrived)


def pooled_grid(patches: Tensor, rows: int, columns: int, grid: int) -> Tensor:
    """Patches [steps, rows * columns, D] averaged to grid x grid cells; 0 keeps all of them.

    Sides that `grid` does not divide give cells that overlap by a row (adaptive average pooling).
    """
    if grid == 0 or (grid, grid) == (rows, columns):
        return patches
    maps = patches.transpose(1, 2).unflatten(2, (rows, columns))  # [steps, D, rows, columns]
    return F.adaptive_avg_pool2d(maps, grid).flatten(2).transpose(1, 2)  # [steps, grid ** 2, D]
