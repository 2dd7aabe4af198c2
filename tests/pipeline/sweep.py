"""A crash at every file operation of every stage: `python -m tests.pipeline.sweep FOLDER`.

A stage runs in a forked child whose audit hook counts what it does to files (opening one to write,
renaming, linking, removing, making folders) and dies at the n-th, as a kill would: nothing is
flushed, no `finally` runs. A rename counts twice: the first death leaves half of what was to be
renamed, the second all of it. Then the stage runs again as DVC would run it, and its outs must be
those of a run that nobody disturbed. Prints one JSON line per stage.

Children inherit what the undisturbed run imported: with that done again, most of a run would be
imports.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DIED = 117
CHANGES = {"os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR
WORK = Path(".dvc/tmp/pjepa")
SIZES: dict[str, Any] = {
    "data": {
        "holdout": 0.4,
        "demo": {"takes": 8, "min_s": 8.0, "max_s": 9.0, "video_fps": 4, "video_size": 32},
    },
    "machine": {"workers": 1},
    "pooler": {
        "kind": "action",
        "epochs": 2,
        "folds": 2,
        "batch_windows": 256,
        "depth": 1,
        "heads": 2,
        "window": 4,
    },
    "pjepa": {"segments": "annotated"},
    "select": {"by": "holdout"},
    "cells": {"probes": ["linear", "attentive"], "representations": ["pjepa"]},
    "probe": {"attentive": {"epochs": 2, "width": 16, "window": 32, "chunk": 8}},
}


@dataclass
class Deaths:
    """Counts file operations below the working folder and dies at one of them."""

    at: int = 0  # 0: never
    count: int = 0
    names: list[str] = field(default_factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
            self.step("write", args[0])
        elif event in CHANGES and self.changes(event, args):
            if event == "os.rename":
                self.step("half written", args[0], torn=True)
            self.step(event, args[0])

    def changes(self, event: str, args: tuple[Any, ...]) -> bool:
        """Whether there is something to make or remove: `missing_ok` and `exist_ok` do nothing."""
        if args[-1] not in (-1, None) and event != "os.rename":  # relative to an open folder
            return True
        there = os.path.lexists(args[0])
        return not there if event == "os.mkdir" else there

    def step(self, what: str, path: Any, torn: bool = False) -> None:
        place = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None
        if place is None or not place.absolute().is_relative_to(Path.cwd()):
            return
        self.count += 1
        if self.at:
            if self.count == self.at:
                if torn and place.is_file():
                    os.truncate(place, place.stat().st_size // 2)
                os._exit(DIED)
        else:
            self.names.append(f"{what} {place}")


def forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """Runs `work` in a child; its exit code and what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                value = work()
            os.write(writer, json.dumps(value).encode())
            os._exit(0)
        except BaseException:
            os.write(writer, json.dumps(said.getvalue() + traceback.format_exc()).encode())
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else None


class InTurn(Executor):
    """A pool without processes: what workers do to files is counted too."""

    def __init__(self, *options: Any, **more: Any) -> None:
        """Whatever a pool is told."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given, **named))
        return done


def stage_run(stage: str, folder: Path, at: int | None) -> Callable[[], list[str]]:
    """A run of the stage in `folder`, dying at operation `at`; what it did to files.

    Undisturbed (`None`) it returns the modules that are loaded in the end.
    """

    def work() -> list[str]:
        import pjepa.takes.demo.source as demo
        import stages.patches
        from pjepa.storage.saver import Saver
        from tests.pipeline.in_process import run_stage

        os.chdir(folder)
        os.environ |= {"DVC_ROOT": str(folder), "PJEPA_DATA_ROOT": str(folder), "PJEPA_FSYNC": "0"}
        Saver.is_due = lambda saver: True  # type: ignore[method-assign]
        stages.patches.chosen_executor = lambda config: in_turn
        demo.ProcessPoolExecutor = InTurn  # type: ignore[misc, assignment]
        deaths = Deaths(at or 0)
        if at is not None:
            sys.addaudithook(deaths)
        run_stage(stage)
        return list(sys.modules) if at is None else deaths.names

    return work


def in_turn(jobs: list[Any], config: Any, facts: Any, on_frames: Any) -> Iterator[Any]:
    """The same for the executor of `patches`."""
    from pjepa.patches.encode import encoded_job

    for job in jobs:
        yield encoded_job(job, config, facts, on_frames)


def clean_project(folder: Path) -> set[str]:
    """All stages, undisturbed; the modules they loaded."""
    from tests.pipeline.in_process import SMALL, STAGES, merged, write_params

    def prepare() -> None:
        from pjepa.core.section import read_section
        from pjepa.takes.config import DataConfig
        from pjepa.takes.sources.scan import write_scan
        from pjepa.tools.paths import source_list

        folder.mkdir(parents=True)
        os.chdir(folder)
        write_params(merged(SMALL, SIZES))
        write_scan(read_section(DataConfig, "data"), folder, source_list("demo"))

    modules: set[str] = set()
    for work in (prepare, *(stage_run(stage, folder, None) for stage in STAGES)):
        code, said = forked(work)
        if code:
            raise SystemExit(f"the undisturbed run fails: {said}")
        modules |= set(said or ())
    return modules


def warmed(modules: set[str]) -> None:
    """Imports these here, and so in every child."""
    for name in sorted(modules - sys.modules.keys()):
        with contextlib.suppress(Exception):  # some are made, not found
            importlib.import_module(name)


def outs(stage: str) -> list[Path]:
    """What dvc.yaml says the stage writes."""
    found = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"][stage]
    named = [*found.get("outs", []), *found.get("metrics", [])]
    paths = [Path(next(iter(out)) if isinstance(out, dict) else out) for out in named]
    return [Path("results/probe") if "${" in str(path) else path for path in paths]


def removed_outs(stage: str, folder: Path) -> None:
    """DVC removes a stage's outs before it runs it."""
    for out in outs(stage):
        path = folder / out
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def contents(stage: str, folder: Path) -> dict[str, bytes]:
    """Every byte the stage wrote."""
    files: list[Path] = []
    for out in outs(stage):
        path = folder / out
        files += [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.exists()}


def leftovers(stage: str, folder: Path) -> list[str]:
    """Partial files, and resume states of a stage that succeeded."""
    partial = [str(p.relative_to(folder)) for p in folder.rglob("*.partial")]
    work = folder / WORK / stage
    states = [str(p.relative_to(folder)) for p in work.glob("*") if p.suffix != ".lock"]
    return partial + states


def faults_at(stage: str, base: Path, trial: Path, at: int) -> list[str]:
    """What differs from an undisturbed run after a death at operation `at` and another run."""
    shutil.rmtree(trial, ignore_errors=True)
    shutil.copytree(base, trial)
    removed_outs(stage, trial)
    code, said = forked(stage_run(stage, trial, at))
    if code not in (0, DIED):
        return [f"ended with {code}: {said}"]
    removed_outs(stage, trial)
    code, said = forked(stage_run(stage, trial, None))
    if code:
        return [f"the second run ended with {code}: {said}"]
    expected, found = contents(stage, base), contents(stage, trial)
    differing = [
        name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)
    ]
    return [*differing, *(f"left over: {name}" for name in leftovers(stage, trial))]


def swept(stage: str, base: Path, trial: Path, every: int) -> dict[str, Any]:
    """One stage, a death at every operation (or at every so many)."""
    shutil.rmtree(trial, ignore_errors=True)
    shutil.copytree(base, trial)
    removed_outs(stage, trial)
    code, names = forked(stage_run(stage, trial, 0))
    if code:
        raise SystemExit(f"{stage}: {names}")
    faults: dict[str, list[str]] = {}
    places = range(1 + (every - 1) // 2, len(names) + 1, every)
    for at in places:
        if found := faults_at(stage, base, trial, at):
            faults[f"{at}: {names[at - 1]}"] = found
    return {"stage": stage, "operations": len(names), "crashes": len(places), "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stages", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="die at every so many operations")
    options = parser.parse_args()
    from tests.pipeline.in_process import STAGES, preloaded

    preloaded()
    base, trial = options.folder.absolute() / "clean", options.folder.absolute() / "trial"
    warmed(clean_project(base))
    shutil.rmtree(base / WORK)
    for stage in options.stages or STAGES:
        print(json.dumps(swept(stage, base, trial, options.every)), flush=True)


if __name__ == "__main__":
    main()
