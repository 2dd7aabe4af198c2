"""Takes on processes of this machine.

On the CPU one process works on one take at a time. On CUDA there is one process, and one loaded
model, per device; `machine.workers` takes are read at once by its threads, because one thread
rarely decodes as fast as a GPU encodes. A process that dies costs the takes it has: another is
started and they are tried again, each alone, so that a crash counts against the take that
caused it.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from pjepa.core.machine import device_kind
from pjepa.patches.backbone import BackboneFacts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, OnFrames, Outcome, encoded_job
from pjepa.patches.extract import Executor
from pjepa.ui.console import InputError, say
from pjepa.ui.device import check_cuda

TRIES = 3  # of a take whose process dies


Message = int | Outcome | Exception  # frames encoded, a take's end, what ends the run


def run_local(
    jobs: list[Job], config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Iterator[Outcome]:
    """Yield outcomes as they come; takes are started in order."""
    check_cuda(config.device)  # once, before any worker says it
    team = WorkerPool(jobs, config, facts)
    try:
        yield from team.outcomes(on_frames)
    finally:
        team.end()


def takes_per_process(config: PatchesConfig) -> tuple[int, int]:
    """Return how many processes there are, and how many takes each has at a time."""
    if device_kind(config.device) != "cuda":
        return config.workers, 1
    devices = torch.cuda.device_count() if config.device == "cuda" else 1
    processes = min(config.workers, devices)
    return processes, -(-config.workers // processes)


class Worker:
    """A process, the connection to it, and the takes it has."""

    def __init__(
        self, number: int, config: PatchesConfig, facts: BackboneFacts, takes: int
    ) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, number, config, facts, takes), daemon=True
        )
        self.process.start()
        other.close()  # or its end would stay open here when the process dies
        self.number, self.takes = number, takes
        self.jobs: dict[str, Job] = {}

    def message(self) -> Message | None:
        """Return the next message of the process; None if it died."""
        with suppress(EOFError, OSError):
            return self.connection.recv()
        return None

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class WorkerPool:
    """The workers and the takes that wait for one."""

    def __init__(self, jobs: list[Job], config: PatchesConfig, facts: BackboneFacts) -> None:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when a worker's OpenMP starts
        self.config, self.facts = config, facts
        self.waiting, self.deaths = deque(jobs), Counter[str]()
        self.alone: set[str] = set()  # takes whose process died while it had others too
        processes, takes = takes_per_process(config)
        count = min(processes, len(jobs))
        self.workers = [Worker(number, config, facts, takes) for number in range(count)]

    def outcomes(self, on_frames: OnFrames) -> Iterator[Outcome]:
        """Yield the outcome of every take as it comes."""
        for worker in list(self.workers):
            self._fill(worker)
        while busy := {w.connection: w for w in self.workers if w.jobs}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                message = worker.message()
                if isinstance(message, int):
                    on_frames(message)
                    continue
                if isinstance(message, Exception):
                    raise message
                outcomes = self._ended(worker, message)
                self._fill(self._usable(worker, message))
                yield from outcomes

    def _ended(self, worker: Worker, outcome: Outcome | None) -> list[Outcome]:
        """Return the takes that ended; those of a dead or stuck process are tried again."""
        if outcome is None:
            return self._died(worker)
        del worker.jobs[outcome.take_id]
        if outcome.stuck:  # its process is ended, and with it the other takes' threads
            self.waiting.extendleft(reversed(worker.jobs.values()))
        return [outcome]

    def _died(self, worker: Worker) -> list[Outcome]:
        """Return the take that a process died of for the last time, if it had one take only."""
        worker.process.join()
        given_up = []
        for job in reversed(worker.jobs.values()):
            self.deaths[job.take_id] += len(worker.jobs) == 1
            if self.deaths[job.take_id] < TRIES:
                say(
                    f"patches: a worker died on take {job.take_id} (exit code "
                    f"{worker.process.exitcode}); the take is tried again"
                )
                self.alone.add(job.take_id)
                self.waiting.appendleft(job)
                continue
            reason = (
                f"{job.name}: {TRIES} workers died on it, most likely out of memory; lower "
                "machine.workers or patches.batch_windows"
            )
            given_up.append(Outcome(job.take_id, reason))
        return given_up

    def _usable(self, worker: Worker, outcome: Outcome | None) -> Worker:
        """Return the worker, or a new one if it is dead or stuck."""
        if outcome is not None and not outcome.stuck:
            return worker
        worker.end()
        fresh = Worker(worker.number, self.config, self.facts, worker.takes)
        self.workers[worker.number] = fresh
        return fresh

    def _fill(self, worker: Worker) -> None:
        """Give the worker as many takes as it may have; a suspect one gets a process of its own."""
        while self.waiting and len(worker.jobs) < worker.takes:
            apart = self.alone & {self.waiting[0].take_id, *worker.jobs}
            if apart and worker.jobs:
                return
            job = self.waiting.popleft()
            worker.jobs[job.take_id] = job
            with suppress(OSError):  # it died just now: its message will say so
                worker.connection.send(job)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def serve(
    connection: Connection, number: int, config: PatchesConfig, facts: BackboneFacts, takes: int
) -> None:
    """Serve takes in a worker process: receive takes, send frame counts and outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    sending = threading.Lock()

    def send(message: Message) -> None:
        with sending, suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
            connection.send(message)

    def work(job: Job) -> None:
        try:
            send(encoded_job(job, config, facts, send))
        except InputError as error:
            send(error)
        except Exception:
            send(RuntimeError(traceback.format_exc()))

    def begin() -> None:
        if config.device == "cuda":  # of this thread
            torch.cuda.set_device(number % torch.cuda.device_count())

    pool = ThreadPoolExecutor(takes, initializer=begin)
    try:
        while True:
            pool.submit(work, connection.recv())
    except (EOFError, ConnectionResetError):
        os._exit(0)  # the parent is gone, and with it whoever wants the takes that are left


# Which executor `machine.executor` names.


def chosen_executor(config: PatchesConfig) -> Executor:
    """Return the executor: local processes or a Ray cluster, with the same bytes."""
    if config.executor == "ray":
        from pjepa.patches.ray import run_ray

        return run_ray

    return run_local
