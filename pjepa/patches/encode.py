"""One take, from its video to its file in the store.

Three things happen at once: a thread decodes and prepares the next windows, this one encodes, and
a third writes what is done. What is written depends on none of it: windows go through the encoder
in their order, in batches that follow from the take alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import Window, token_count
from pjepa.nn.prefetch import Prefetch, StalledError
from pjepa.patches.backbone import Backbone, BackboneFacts, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.store import Notes, PatchInfo, PatchWriter, patch_writer, write_notes
from pjepa.ui.console import InputError, say
from pjepa.ui.transfer import pinned
from pjepa.video.index import AGAIN, CUT_OFF_S
from pjepa.video.reader import Reader, open_video

PATIENCE_S = 600.0  # a decoder that gives nothing for this long hangs
ENCODING = threading.Lock()  # takes of one process share a model and its device

OnFrames = Callable[[int], None]  # gets the number of frames encoded since the last call


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
    max_gap_s: float = MAX_GAP_S


@dataclass(frozen=True)
class Outcome:
    """How a take ended: encoded, or not, for one reason in one line."""

    take_id: str
    reason: str | None = None
    stuck: bool = False  # a thread of this process hangs in a decoder: start another process


@dataclass(frozen=True)
class WindowBatch:
    """Prepared windows [B, 3, T, crop, crop] of a take of `steps` tokens; it jumps at `jumps_s`."""

    windows: list[Window]
    video: Tensor
    steps: int
    jumps_s: tuple[float, ...] = ()
    repeated: int = 0  # frames of the take so far that were replaced by the one before


@dataclass(frozen=True)
class DeviceCopy:
    """Features on their way from the device, [B, steps, cells, D] fp16."""

    values: Tensor
    arrived: torch.cuda.Event | None

    def array(self) -> NDArray[np.float16]:
        """Return the values; waits for the copy."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values.numpy()


def patch_info(config: PatchesConfig, facts: BackboneFacts) -> PatchInfo:
    """Return the description of the stored features."""
    names = (field.name for field in fields(PatchInfo))
    settings = {name: getattr(config, name) for name in names if hasattr(config, name)}
    grid = {"rows": config.grid or facts.rows, "columns": config.grid or facts.columns}
    model = {"weights_id": facts.weights_id, "crop": facts.crop, "width": facts.width}
    return PatchInfo(**settings | model | grid)


def open_take(path: Path, config: PatchesConfig, max_gap_s: float = MAX_GAP_S) -> Reader:
    """Return the video as every stage and tool reads it."""
    return open_video(path, config.reader, max_gap_s, config.on_error == "repeat")


def encoded_job(
    job: Job, config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Outcome:
    """Encode a take into its file; an unreadable video is an outcome, not an error."""
    if job.target.exists():  # another worker was faster, or died after finishing
        return Outcome(job.take_id)
    torch.set_num_threads(config.threads)
    with ENCODING:
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
) -> Iterator[WindowBatch]:
    """Yield the take's windows in order, read and prepared; runs on its own thread."""
    torch.set_num_threads(1)  # of this thread: the encoder has the others
    sampling, device = info.sampling, torch.device(config.device)
    with open_take(job.video, config, job.max_gap_s) as reader:
        duration_s = reader.info.duration_s
        for jump in reader.info.jumps:
            say(f"{job.name}: {jump}: a new recording begins there")
        jumps_s = reader.info.jumps_s
        if duration_s < job.duration_s - CUT_OFF_S:
            there = f"{duration_s:.1f} of {job.duration_s:.1f} s are there"
            raise InputError(f"{job.video}: is cut off, {there}; {AGAIN}")
        steps = token_count(duration_s, sampling.tokens_fps)
        plan = sampling.windows(steps, job.boundaries, jumps_s)
        for start in range(0, len(plan), config.batch_windows):
            windows = plan[start : start + config.batch_windows]
            frames = (reader.frames(sampling.frame_times(window)) for window in windows)
            video = torch.stack([backbone.prepared(pictures) for pictures in frames])
            yield WindowBatch(windows, pinned(video, device), steps, jumps_s, reader.stand_ins)


def write_take(
    target: Path,
    batches: Iterator[WindowBatch],
    backbone: Backbone,
    config: PatchesConfig,
    info: PatchInfo,
    on_frames: OnFrames,
) -> None:
    """Encode the batches of a take; each is written while the next one is encoded."""
    first = batch = next(batches)
    written: Future[None] | None = None
    with patch_writer(target, info, first.steps) as writer, ThreadPoolExecutor(1) as disk:
        for batch in chain([first], batches):
            with ENCODING:
                features = encoded_batch(backbone, batch.video, config)
            if written is not None:
                written.result()
            written = disk.submit(append_windows, writer, features, batch.windows)
            on_frames(sum(window.tokens for window in batch.windows) * info.tubelet)
        if written is not None:
            written.result()
        write_notes(target, Notes(batch.repeated, first.jumps_s))


def append_windows(writer: PatchWriter, features: DeviceCopy, windows: Sequence[Window]) -> None:
    """Write the steps that each window keeps; padding and context are left out."""
    for window, steps in zip(windows, features.array(), strict=True):
        writer.append(steps[window.place : window.place + window.tokens])


@torch.inference_mode()
def encoded_batch(backbone: Backbone, video: Tensor, config: PatchesConfig) -> DeviceCopy:
    """Return fp16 features [B, steps, cells, D] of windows [B, 3, T, crop, crop]."""
    facts = backbone.facts
    features = backbone.encoded(video.to(config.device, non_blocking=True))
    pooled = pooled_grid(features.flatten(0, 1), facts.rows, facts.columns, config.grid)
    return device_copy(pooled.unflatten(0, (len(video), -1)).half())


def device_copy(features: Tensor) -> DeviceCopy:
    """Return the features in host memory; from a GPU the copy is only started."""
    if features.device.type != "cuda":
        return DeviceCopy(features.cpu(), None)
    host = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
    host.copy_(features, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return DeviceCopy(host, arrived)


def pooled_grid(patches: Tensor, rows: int, columns: int, grid: int) -> Tensor:
    """Return patches [steps, rows * columns, D] averaged to grid x grid cells; 0 keeps all.

    Sides that `grid` does not divide give cells that overlap by a row (adaptive average pooling).
    """
    if grid == 0 or (grid, grid) == (rows, columns):
        return patches
    maps = patches.transpose(1, 2).unflatten(2, (rows, columns))  # [steps, D, rows, columns]
    return F.adaptive_avg_pool2d(maps, grid).flatten(2).transpose(1, 2)  # [steps, grid ** 2, D]
