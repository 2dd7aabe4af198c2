"""Patch features of many takes, one take per unit of work, on local processes.

Bytes depend on the take, the settings and the threads per worker, never on how many workers run:
each take is encoded alone, in batches whose composition follows from its own windows.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pjepa.backbones.backbone import Backbone, BackboneFacts, backbone_facts, load_backbone
from pjepa.backbones.store import (
    Half,
    PatchInfo,
    patch_writer,
    remove_abandoned,
    store_key,
    store_path,
)
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.progress import track
from pjepa.takes.manifest import VideoRow
from pjepa.video.reader import Reader, open_video
from pjepa.video.sampling import token_count
from pjepa.work import file_sha256

MISSING_S = 0.5  # a video this much shorter than its table says was cut off
NOT_BYTES = {"checkpoint", "seed", "workers"}  # covered by the weights' identity, or no effect


@dataclass(frozen=True)
class Job:
    """One take to encode and where its features go."""

    take_id: str
    video: Path
    duration_s: float
    boundaries: NDArray[np.float64] | None
    target: Path


@dataclass(frozen=True)
class Extraction:
    """Where each take's features are (take order), what they are, and how many are new."""

    files: dict[str, Path]
    info: PatchInfo
    encoded: int


def extract(
    rows: list[VideoRow],
    boundaries: dict[str, NDArray[np.float64]],
    config: PatchesConfig,
    store: Path,
) -> Extraction:
    """Features of every take, encoded where the store does not hold them yet."""
    store.mkdir(parents=True, exist_ok=True)
    remove_abandoned(store)
    facts = backbone_facts(config)
    jobs = planned_jobs(rows, boundaries, config, facts.weights_id, store)
    missing = {job.target: job for job in jobs if not job.target.exists()}
    _encode_all(list(missing.values()), config, facts)
    files = {job.take_id: job.target for job in jobs}
    return Extraction(files, patch_info(config, facts), len(missing))


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
        grid=config.grid,
        rows=config.grid or facts.rows,
        columns=config.grid or facts.columns,
        width=facts.width,
    )


def planned_jobs(
    rows: list[VideoRow],
    boundaries: dict[str, NDArray[np.float64]],
    config: PatchesConfig,
    identity: str,
    store: Path,
) -> list[Job]:
    """One job per take; videos are hashed in parallel (hashing releases the interpreter lock)."""
    settings = config.model_dump(mode="json", exclude=NOT_BYTES)

    def job(row: VideoRow) -> Job:
        if not row.path.is_file():
            raise InputError(f"take {row.take_id}: no video {row.path}; check the data root")
        limits = boundaries.get(row.take_id) if config.window_scope == "segment" else None
        key = store_key(file_sha256(row.path), settings, limits, identity)
        return Job(row.take_id, row.path, row.duration_s, limits, store_path(store, key))

    with ThreadPoolExecutor(config.workers) as pool:
        return list(pool.map(job, rows))


def _encode_all(jobs: list[Job], config: PatchesConfig, facts: BackboneFacts) -> None:
    """Encodes the jobs on spawned workers; the first failure stops the rest."""
    if not jobs:
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when a worker's OpenMP starts
    workers = min(config.workers, len(jobs))
    context = get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, torch.set_num_threads, (config.threads,))
    try:
        futures = [pool.submit(encode_to_file, job, config, facts) for job in jobs]
        for done in track(as_completed(futures), "patches", len(jobs), "take"):
            done.result()
    except BrokenProcessPool:
        raise InputError(
            "patches: a worker died, most likely out of memory; "
            "lower patches.workers or patches.batch_windows"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def encode_to_file(job: Job, config: PatchesConfig, facts: BackboneFacts) -> None:
    """Encodes one take and puts its file into the store."""
    backbone = _worker_backbone(config, facts)
    with open_video(job.video) as reader:
        found = reader.info.duration_s
        if found < job.duration_s - MISSING_S:
            raise InputError(
                f"{job.video}: {found:.1f} s long, expected {job.duration_s:.1f} s; "
                "the file is cut off, fetch or export it again"
            )
        steps = token_count(found, config.tokens_fps)
        with patch_writer(job.target, patch_info(config, facts), steps) as writer:
            for patches in encoded_windows(backbone, reader, job.boundaries, config):
                writer.append(patches)


@lru_cache(maxsize=1)
def _worker_backbone(config: PatchesConfig, facts: BackboneFacts) -> Backbone:
    return load_backbone(config, facts)


def encoded_windows(
    backbone: Backbone,
    reader: Reader,
    boundaries: NDArray[np.float64] | None,
    config: PatchesConfig,
) -> Iterator[Half]:
    """Features [tokens, cells, width] of a take in order, a few windows at a time."""
    sampling = patch_info(config, backbone.facts).sampling
    plan = sampling.windows(token_count(reader.info.duration_s, sampling.tokens_fps), boundaries)
    for start in range(0, len(plan), config.batch_windows):
        batch = plan[start : start + config.batch_windows]
        frames = (reader.frames(sampling.frame_times(window)) for window in batch)
        video = torch.stack([backbone.prepared(shown) for shown in frames])
        features = encoded_batch(backbone, video, config)  # [B, steps, cells, D]
        for window, found in zip(batch, features, strict=True):
            yield found[window.place : window.place + window.tokens].numpy()  # without padding


@torch.inference_mode()
def encoded_batch(backbone: Backbone, video: Tensor, config: PatchesConfig) -> Tensor:
    """fp16 features [B, steps, cells, D] of windows [B, 3, T, crop, crop]."""
    facts = backbone.facts
    features = backbone.encoded(video.to(config.device))  # [B, steps, rows * columns, D]
    pooled = pooled_grid(features.flatten(0, 1), facts.rows, facts.columns, config.grid)
    return pooled.unflatten(0, (len(video), -1)).half().cpu()


def pooled_grid(patches: Tensor, rows: int, columns: int, grid: int) -> Tensor:
    """Patches [steps, rows * columns, D] averaged to grid x grid cells; 0 keeps all of them.

    Sides that `grid` does not divide give cells that overlap by a row (adaptive average pooling).
    """
    if grid == 0 or (grid, grid) == (rows, columns):
        return patches
    maps = patches.transpose(1, 2).unflatten(2, (rows, columns))  # [steps, D, rows, columns]
    return F.adaptive_avg_pool2d(maps, grid).flatten(2).transpose(1, 2)  # [steps, grid ** 2, D]
