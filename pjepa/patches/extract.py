"""Patch features of many takes: what is missing in the store is encoded, one take at a time.

Bytes depend on the take, the settings and the threads per worker, never on how many workers run or
where: each take is encoded alone, in batches whose composition follows from its own windows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.core.machine import device_kind
from pjepa.core.tables import MAX_GAP_S, BoundaryTimes, VideoRow
from pjepa.core.time import token_count
from pjepa.patches.backbone import BackboneFacts, backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import check_disk, stored_bytes
from pjepa.patches.encode import Job, OnFrames, Outcome, patch_info
from pjepa.patches.store import Notes, PatchInfo, note_files, read_notes, store_path
from pjepa.storage.reading import file_sha256
from pjepa.storage.sealed import damaged_files, put_aside, remembered_hashes, remove_sealed
from pjepa.storage.writing import remove_partials
from pjepa.ui.console import InputError, Meter, say

UNKEYED = {"checkpoint", "seed", "on_error"}  # weights have an identity of their own
REMEMBERED = "videos.json"  # hashes of videos, in the store


# A way to run `encoded_job` on every job, which yields outcomes as they come.
Executor = Callable[[list[Job], PatchesConfig, BackboneFacts, OnFrames], Iterator[Outcome]]


@dataclass(frozen=True)
class Extraction:
    """Where each take's features are (take order), what they are, how many are new.

    `skipped` says of every other take why there are none; `notes` are those of the files.
    """

    files: dict[str, Path]
    info: PatchInfo
    encoded: int
    skipped: dict[str, str]
    notes: dict[str, Notes]


def extract(
    rows: list[VideoRow],
    boundaries: BoundaryTimes,
    config: PatchesConfig,
    store: Path,
    execute: Executor,
) -> Extraction:
    """Return features of every take, encoded where the store does not hold them yet."""
    store.mkdir(parents=True, exist_ok=True)
    remove_partials(store)
    facts = backbone_facts(config)
    skipped = {
        row.take_id: f"{row.video}: no such video; check the data root"
        for row in rows
        if not row.path.is_file()
    }
    refuse_failures(skipped, len(rows), config)
    present = [row for row in rows if row.take_id not in skipped]
    jobs = planned_jobs(present, boundaries, config, facts, store)
    missing = {job.target: job for job in jobs if not job.target.exists()}
    steps = sum(expected_steps(job, config) for job in missing.values())
    check_disk(stored_bytes(steps, config, facts), store)
    reused = {job.target: job for job in jobs if job.target not in missing}
    owners = {file: job for t, job in reused.items() for file in (t, *note_files(t))}
    with ThreadPoolExecutor(1) as background:  # reading the store takes long; encoding continues
        damaged = background.submit(damaged_files, owners, config.workers)
        failed = encode_missing(list(missing.values()), config, facts, execute)
    again = {owners[file].target: owners[file] for file in damaged.result()}
    for file in damaged.result():
        put_aside(file, "is damaged, it is not what was encoded; encoding it again")
        remove_sealed(owners[file].target)  # of a note too: they are made together
    failed |= encode_missing(list(again.values()), config, facts, execute)
    notes = {job.take_id: read_notes(job.target) for job in jobs if job.target not in failed}
    if config.on_error != "repeat":  # the store may hold what an earlier run was allowed to make
        failed |= {
            job.target: f"{job.name}: {notes[job.take_id].repeated} frames cannot be decoded"
            for job in jobs
            if job.take_id in notes and notes[job.take_id].repeated
        }
    skipped |= {job.take_id: failed[job.target] for job in jobs if job.target in failed}
    refuse_failures(skipped, len(rows), config)
    files = {job.take_id: job.target for job in jobs if job.take_id not in skipped}
    return Extraction(
        files,
        patch_info(config, facts),
        len((missing | again).keys() - failed.keys()),
        {row.take_id: skipped[row.take_id] for row in rows if row.take_id in skipped},
        {take_id: notes[take_id] for take_id in files},
    )


def byte_settings(config: PatchesConfig, max_gap_s: float = MAX_GAP_S) -> dict[str, Any]:
    """Return the settings that are part of a store key; the kind of device is one of them."""
    settings = config.model_dump(mode="json", exclude=UNKEYED)
    if max_gap_s != MAX_GAP_S:  # of no effect on almost every video
        settings["max_gap_s"] = max_gap_s
    return settings | {"device": device_kind(config.device)}


def video_hashes(paths: list[Path], store: Path, config: PatchesConfig) -> list[str]:
    """Return sha256 of every video; a terabyte takes half an hour, so they are remembered."""
    what = "patches: hash videos"
    return remembered_hashes(paths, store / REMEMBERED, file_sha256, config.workers, what)


def planned_jobs(
    rows: list[VideoRow],
    boundaries: BoundaryTimes,
    config: PatchesConfig,
    facts: BackboneFacts,
    store: Path,
) -> list[Job]:
    """Return one job per take, keyed by all that can change its features."""
    paths = [row.path.resolve() for row in rows]
    jobs = []
    for row, path, digest in zip(rows, paths, video_hashes(paths, store, config), strict=True):
        limits = boundaries.get(row.take_id) if config.window_scope == "segment" else None
        settings = byte_settings(config, row.max_gap_s)
        target = store_path(store, digest, settings, limits, facts.weights_id)
        jobs.append(
            Job(
                row.take_id, str(row.video), path, row.duration_s, limits, target,
                max_gap_s=row.max_gap_s,
            )
        )  # fmt: skip
    return jobs


def encode_missing(
    jobs: list[Job],
    config: PatchesConfig,
    facts: BackboneFacts,
    execute: Executor,
    on_take: Callable[[str], None] = lambda take_id: None,
    what: str = "patches: take",
) -> dict[Path, str]:
    """Encode the jobs and return the targets of those that failed, and why.

    `on_take` is called for every take that is there; `what` begins the lines about the others.
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
    """Raise if takes failed that may not be skipped, or if none is left; list them all."""
    if not failed or (config.on_error == "skip" and len(failed) < takes):
        return
    for take_id, reason in failed.items():
        say(f"  {take_id}: {reason}")
    first = next(iter(failed))
    hint = "" if len(failed) == takes else ", or leave such takes out with patches.on_error=skip"
    if config.on_error == "fail" and any("frames cannot be decoded" in r for r in failed.values()):
        hint += ", or repeat the frame before a lost one with patches.on_error=repeat"
    raise InputError(
        f"patches: {len(failed)} of {takes} takes cannot be encoded, listed above (the first is "
        f"take {first}: {failed[first]}); correct them{hint}"
    )


def expected_steps(job: Job, config: PatchesConfig) -> int:
    """Return tokens of the take, as far as is known before it is opened."""
    return token_count(job.duration_s or job.about_s, config.tokens_fps)
