"""Patch features of many takes: what is missing in the store is encoded, one take at a time.

Bytes depend on the take, the settings and the threads per worker, never on how many workers run or
where: each take is encoded alone, in batches whose composition follows from its own windows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.backbones.backbone import BackboneFacts, backbone_facts
from pjepa.backbones.cost import stored_bytes
from pjepa.backbones.encode import Job, OnFrames, Outcome, patch_info
from pjepa.backbones.identity import video_hashes
from pjepa.backbones.plan import check_disk
from pjepa.backbones.store import PatchInfo, remove_abandoned, store_key, store_path
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.progress import Meter, say
from pjepa.takes.manifest import VideoRow
from pjepa.video.sampling import token_count

# Covered by the identity of the weights, or of no effect on what is written.
NOT_BYTES = {"checkpoint", "seed", "workers", "executor", "on_error"}

Boundaries = dict[str, NDArray[np.float64]]


class Executor(Protocol):
    """Runs `encoded_job` on every job, wherever it likes, and yields outcomes as they come."""

    def __call__(
        self, jobs: list[Job], config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
    ) -> Iterator[Outcome]: ...


@dataclass(frozen=True)
class Extraction:
    """Where each take's features are (take order), what they are, how many are new.

    `skipped` says of every other take why there are none.
    """

    files: dict[str, Path]
    info: PatchInfo
    encoded: int
    skipped: dict[str, str]


def extract(
    rows: list[VideoRow],
    boundaries: Boundaries,
    config: PatchesConfig,
    store: Path,
    execute: Executor,
) -> Extraction:
    """Features of every take, encoded where the store does not hold them yet."""
    store.mkdir(parents=True, exist_ok=True)
    remove_abandoned(store)
    facts = backbone_facts(config)
    present = [row for row in rows if row.path.is_file()]
    absent = {
        row.take_id: f"{row.video}: no such video; check the data root"
        for row in rows
        if not row.path.is_file()
    }
    refuse_failures(absent, len(rows), config)
    jobs = planned_jobs(present, boundaries, config, facts, store)
    missing = {job.target: job for job in jobs if not job.target.exists()}
    steps = sum(expected_steps(job, config) for job in missing.values())
    check_disk(stored_bytes(steps, config, facts), store)
    failed = encode_missing(list(missing.values()), config, facts, execute)
    skipped = {
        **absent,
        **{job.take_id: failed[job.target] for job in jobs if job.target in failed},
    }
    refuse_failures(skipped, len(rows), config)
    files = {job.take_id: job.target for job in jobs if job.target not in failed}
    encoded = len(missing) - len(failed)
    ordered = {row.take_id: skipped[row.take_id] for row in rows if row.take_id in skipped}
    return Extraction(files, patch_info(config, facts), encoded, ordered)


def planned_jobs(
    rows: list[VideoRow],
    boundaries: Boundaries,
    config: PatchesConfig,
    facts: BackboneFacts,
    store: Path,
) -> list[Job]:
    """One job per take, named by its video's content and all that can change its features."""
    settings = config.model_dump(mode="json", exclude=NOT_BYTES)
    paths = [row.path.resolve() for row in rows]
    jobs = []
    for row, path, digest in zip(
        rows, paths, video_hashes(paths, store, config.workers), strict=True
    ):
        limits = boundaries.get(row.take_id) if config.window_scope == "segment" else None
        target = store_path(store, store_key(digest, settings, limits, facts.weights_id)).resolve()
        jobs.append(Job(row.take_id, str(row.video), path, row.duration_s, limits, target))
    return jobs


def encode_missing(
    jobs: list[Job],
    config: PatchesConfig,
    facts: BackboneFacts,
    execute: Executor,
    on_take: Callable[[str], None] = lambda take_id: None,
    what: str = "patches: take",
) -> dict[Path, str]:
    """Encodes the jobs; the targets of those that could not be, and why.

    `on_take` is told of every take that is there; `what` begins the lines about the others.
    """
    if not jobs:
        return {}
    targets = {job.take_id: job.target for job in jobs}
    failed: dict[Path, str] = {}
    frames = sum(expected_steps(job, config) for job in jobs) * facts.tubelet
    with Meter(what.split(":")[0], frames, "frame") as meter:
        started, done = time.monotonic(), 0

        def on_frames(count: int) -> None:
            pace = (meter.done + count) / max(time.monotonic() - started, 1e-9)
            meter.advance(count, f"{done}/{len(jobs)} takes, {pace:.0f} frames/s")

        for outcome in execute(jobs, config, facts, on_frames):
            done += 1
            if outcome.reason is not None:
                failed[targets[outcome.take_id]] = outcome.reason
                say(f"{what} {outcome.take_id}: {outcome.reason}")
            else:
                on_take(outcome.take_id)
    return failed


def refuse_failures(failed: dict[str, str], takes: int, config: PatchesConfig) -> None:
    """An error if takes failed that may not be skipped, or if none is left; lists them all."""
    if not failed or (config.on_error == "skip" and len(failed) < takes):
        return
    for take_id, reason in failed.items():
        say(f"  {take_id}: {reason}")
    first = next(iter(failed))
    hint = "" if len(failed) == takes else ", or leave such takes out with patches.on_error=skip"
    raise InputError(
        f"patches: {len(failed)} of {takes} takes cannot be encoded, listed above (the first is "
        f"take {first}: {failed[first]}); correct them{hint}"
    )


def expected_steps(job: Job, config: PatchesConfig) -> int:
    """Tokens of the take, as far as is known before it is opened."""
    return token_count(job.duration_s or job.about_s, config.tokens_fps)
