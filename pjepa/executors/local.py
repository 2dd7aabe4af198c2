"""Takes on processes of this machine.

One process works on one take at a time. A process that dies costs that take alone: another is
started and the take is tried again.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from pjepa.backbones.backbone import BackboneFacts
from pjepa.backbones.encode import Job, OnFrames, Outcome, encoded_job
from pjepa.config.patches import PatchesConfig
from pjepa.errors import InputError
from pjepa.progress import say

TRIES = 3  # of a take whose process dies


@dataclass(frozen=True)
class Crash:
    """What ends the run: one line about bad settings, or the traceback of a fault."""

    text: str
    input_error: bool


Message = int | Outcome | Crash  # frames encoded, a take's end, the run's end


def run_local(
    jobs: list[Job], config: PatchesConfig, facts: BackboneFacts, on_frames: OnFrames
) -> Iterator[Outcome]:
    """Outcomes as they come; takes are begun in order."""
    team = Team(jobs, config, facts)
    try:
        yield from team.outcomes(on_frames)
    finally:
        team.end()


class Worker:
    """A process, the connection to it, and the take it has."""

    def __init__(self, number: int, config: PatchesConfig, facts: BackboneFacts) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, number, config, facts), daemon=True
        )
        self.process.start()
        other.close()  # or its end would stay open here when the process dies
        self.number, self.job = number, None

    job: Job | None

    def message(self) -> Message | None:
        """What the process has to say; None if it died."""
        try:
            said: Message = self.connection.recv()
        except (EOFError, OSError):
            return None
        return said

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class Team:
    """The workers and the takes that wait for one."""

    def __init__(self, jobs: list[Job], config: PatchesConfig, facts: BackboneFacts) -> None:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when a worker's OpenMP starts
        self.config, self.facts = config, facts
        self.waiting, self.deaths = deque(jobs), Counter[str]()
        self.workers = [Worker(k, config, facts) for k in range(min(config.workers, len(jobs)))]

    def outcomes(self, on_frames: OnFrames) -> Iterator[Outcome]:
        """Every take's end, as they come."""
        for worker in list(self.workers):
            self._give_next(worker)
        while busy := {w.connection: w for w in self.workers if w.job is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                said = worker.message()
                if isinstance(said, int):
                    on_frames(said)
                    continue
                outcome = self._outcome(worker, said)
                self._give_next(self._fit(worker, said))
                if outcome is not None:
                    yield outcome

    def _outcome(self, worker: Worker, said: Outcome | Crash | None) -> Outcome | None:
        """How the worker's take ended; None if it is to be tried again."""
        job, worker.job = worker.job, None
        assert job is not None
        if isinstance(said, Crash):
            raise InputError(said.text) if said.input_error else RuntimeError(said.text)
        if said is not None:
            return said
        worker.process.join()
        self.deaths[job.take_id] += 1
        if self.deaths[job.take_id] < TRIES:
            say(
                f"patches: a worker died on take {job.take_id} (exit code "
                f"{worker.process.exitcode}); the take is tried again"
            )
            self.waiting.appendleft(job)
            return None
        reason = (
            f"{job.name}: {TRIES} workers died on it, most likely out of memory; lower "
            "patches.workers or patches.batch_windows"
        )
        return Outcome(job.take_id, reason)

    def _fit(self, worker: Worker, said: Outcome | Crash | None) -> Worker:
        """The worker, or a new one in the place of a dead or stuck one."""
        if isinstance(said, Outcome) and not said.stuck:
            return worker
        worker.end()
        fresh = Worker(worker.number, self.config, self.facts)
        self.workers[worker.number] = fresh
        return fresh

    def _give_next(self, worker: Worker) -> None:
        if self.waiting:
            worker.job = self.waiting.popleft()
            with suppress(OSError):  # it died just now: its message will say so
                worker.connection.send(worker.job)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def serve(connection: Connection, number: int, config: PatchesConfig, facts: BackboneFacts) -> None:
    """A worker's life: takes come in, frame counts and outcomes go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if config.device == "cuda":
        torch.cuda.set_device(number % torch.cuda.device_count())
    try:
        while True:
            job = connection.recv()
            connection.send(encoded_job(job, config, facts, connection.send))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except InputError as error:
        connection.send(Crash(str(error), input_error=True))
    except Exception:
        connection.send(Crash(traceback.format_exc(), input_error=False))
