"""Takes on a Ray cluster: the one at RAY_ADDRESS, or a local one for the length of the run.

The store and the videos must stand under the same paths on every node (a shared file system).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pjepa
from pjepa.patches.backbone import BackboneFacts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, OnFrames, Outcome, encoded_job
from pjepa.ui.console import InputError

# Read when Ray is imported: without clusters this node is 127.0.0.1 and listens there alone. Given
# 127.0.0.1 as an option, Ray takes the machine's outer address in its place.
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
RETRIES = 2  # of a take whose worker or node dies
REACHABLE_S = 10.0


def run_ray(
    jobs: list[Job], config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Iterator[Outcome]:
    """Yield outcomes as they come; frames are counted take by take."""
    ray = _imported()
    with _cluster(ray, config):
        devices = ray.cluster_resources().get("GPU", 0.0)
        share = gpu_share(devices, config.workers) if config.device.startswith("cuda") else 0.0
        resources = {"num_cpus": config.threads, "num_gpus": share}
        task = ray.remote(max_retries=RETRIES, **resources)(encoded_remotely)
        waiting = {task.remote(job, config, facts): job for job in jobs}
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            job = waiting.pop(ready)
            try:
                outcome, frames = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError:  # the worker, its memory or its node, every time
                outcome, frames = Outcome(job.take_id, _lost(job)), 0
            on_frames(frames)
            yield outcome


def gpu_share(devices: float, workers: int) -> float:
    """Return the share of a GPU that one take asks for, so that `workers` takes run at once.

    Every worker loads the model, so their number per GPU is bounded by its memory.
    """
    return min(1.0, devices / workers) if devices else 1.0


def encoded_remotely(job: Job, config: PatchesConfig, facts: BackboneFacts) -> tuple[Outcome, int]:
    """Return `encoded_job` and the frames it encoded."""
    counts: list[int] = []
    outcome = encoded_job(job, config, facts, counts.append)
    return outcome, sum(counts)


def _lost(job: Job) -> str:
    return (
        f"{job.name}: {RETRIES + 1} workers were lost on it, most likely out of memory; lower "
        "patches.batch_windows or give Ray workers more memory"
    )


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.setdefault(CLUSTERS, "0")
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise InputError(
            "machine.executor=ray needs the package ray; pip install 'pjepa[ray]', or use local"
        ) from None


@contextmanager
def _cluster(ray: Any, config: PatchesConfig) -> Iterator[None]:
    """Connect to the cluster; workers run this copy of the code and wait without spinning."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _check_reachable(address)
    code = str(Path(pjepa.__file__).resolve().parents[1])
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": code}
    options: dict[str, Any] = {}
    if not address:
        options = {"num_cpus": config.workers * config.threads}
    try:
        ray.init(
            address=address or "local",
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            include_dashboard=None if address else False,
            **options,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"machine.executor=ray: no cluster ({reason}); check RAY_ADDRESS"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would wait for many minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "//" in host:
        return  # `auto` and ray://... are Ray's to resolve
    try:
        socket.create_connection((host, int(port)), REACHABLE_S).close()
    except OSError as error:
        raise InputError(
            f"machine.executor=ray: no cluster at RAY_ADDRESS={address} ({error}); start one with "
            "`ray start --head`, or unset RAY_ADDRESS for a local one"
        ) from None
