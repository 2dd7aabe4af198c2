"""`pjepa doctor --verify`: every byte on disk against the hash it was written with, like git fsck.

The patch store, the states of interrupted runs and live states below the working folder have hashes
beside them, DVC's cache names its files by their md5, and dvc.lock has the md5 of every out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pjepa.core.machine import cores
from pjepa.core.section import read_params, read_section
from pjepa.report.config import CellsConfig
from pjepa.storage.reading import read_yaml
from pjepa.storage.saver import TENSORS
from pjepa.storage.sealed import BEFORE, SEAL, intact, seal_of
from pjepa.storage.work import work_root
from pjepa.tools.params import dotted
from pjepa.tools.paths import PARAMS
from pjepa.ui.console import InputError, say, track

# What dvc.lock says of the results on disk: with which parameters they were made.

LOCK = Path("dvc.lock")
LOOKS = ("cells", "report")  # sections that choose what is shown, and change no number


def locked_stages() -> dict[str, Any]:
    """Return the stages of dvc.lock by name; none before the first run."""
    if not LOCK.is_file():
        return {}
    locked = read_yaml(LOCK)
    if not isinstance(locked, dict):
        raise InputError(f"{LOCK}: no lock file of DVC; take it from Git (`git checkout {LOCK}`)")
    return locked.get("stages") or {}


def changed_since_run() -> list[str]:
    """Return `name value (was value)` of every parameter that has changed since the last run."""
    params = read_params()
    values, changed = dotted(params), {}
    for section, recorded in _recorded(read_section(CellsConfig, "cells", params)):
        before = dotted({section: recorded})
        now = {name: v for name, v in values.items() if f"{name}.".startswith(f"{section}.")}
        for name in {**before, **now}:
            if before.get(name) != now.get(name):
                was = before.get(name, "not set")
                changed[name] = f"{name} {now.get(name, 'not set')} (was {was})"
    return list(changed.values())


def _recorded(cells: CellsConfig) -> Iterator[tuple[str, Any]]:
    """Yield the sections that results were made with; dvc.lock keeps cells of earlier runs too."""
    of_run = {f"probe@{p}-{r}" for p in cells.probes for r in cells.representations}
    for name, stage in locked_stages().items():
        if name in of_run or not name.startswith("probe@"):
            sections = (stage.get("params") or {}).get(str(PARAMS)) or {}
            yield from (item for item in sections.items() if item[0] not in LOOKS)


# What is stored, and whether it is what was written.


@dataclass(frozen=True)
class Suspect:
    """A file, how it is judged, and what to do if it is not what was written."""

    path: Path
    good: Callable[[], bool]
    remedy: str


def damage() -> Iterator[str]:
    """Yield one line per file that is not as written, then how many were read."""
    suspects = [*_sealed_files(), *_locked_files()]
    with ThreadPoolExecutor(cores()) as pool:
        judged = pool.map(lambda suspect: suspect.good(), suspects)
        tracked = track(judged, "verify", total=len(suspects), unit="file")
        for suspect, good in zip(suspects, tracked, strict=True):
            if not good:
                yield f"{suspect.path}: is not what was written; {suspect.remedy}"
    say(f"verified: {len(suspects)} files and folders")


def _sealed_files() -> Iterator[Suspect]:
    """Yield files of the patch store, interrupted runs and live states, with earlier ones."""
    for seal in [*sorted(work_root().rglob(f"*{SEAL}")), *_live_seals()]:
        path = seal.with_name(seal.name.removesuffix(SEAL))
        for file in (path, path.with_name(f"{path.name}{BEFORE}")):
            if file.is_file() and seal_of(file) == seal:
                yield Suspect(file, partial(intact, file), "the next run makes it anew")


def _live_seals() -> Iterator[Path]:
    """Yield the hashes of live states (`pjepa stream --state`) below the working folder."""
    for folder, inner, files in os.walk("."):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if f"{TENSORS}{SEAL}" in files:
            yield Path(folder) / f"{TENSORS}{SEAL}"


def _locked_files() -> Iterator[Suspect]:
    """Yield the files of DVC's cache, named by their md5, and the outs that are here."""
    stages = locked_stages()
    if not LOCK.is_file():
        return
    from dvc.repo import Repo

    cache = Path(Repo().cache.local.path)
    for path in sorted(cache.glob("[0-9a-f][0-9a-f]/*")):
        digest = path.parent.name + path.name.removesuffix(".dir")
        hint = "remove it and every link to it, then `dvc repro` or `dvc pull`"
        yield Suspect(path, partial(_has_md5, path, digest), hint)
    for out in (out for stage in stages.values() for out in stage.get("outs", [])):
        for path, digest in _listed_files(Path(out["path"]), str(out.get("md5", "")), cache):
            yield Suspect(path, partial(_has_md5, path, digest), "remove it, then `dvc repro`")


def _listed_files(path: Path, digest: str, cache: Path) -> list[tuple[Path, str]]:
    """Return the files of an out with their md5; the folder, if the cache does not list it."""
    listing = cache / digest[:2] / digest[2:]
    if not path.exists():
        return []
    if not path.is_dir() or not listing.is_file() or _md5(listing) != digest.removesuffix(".dir"):
        return [(path, digest)]
    entries = json.loads(listing.read_text(encoding="utf-8"))
    return [(path / entry["relpath"], entry["md5"]) for entry in entries]


def _has_md5(path: Path, digest: str) -> bool:
    """Return whether a file, or the list of a folder's files, has DVC's hash."""
    if not path.is_dir():
        return path.is_file() and _md5(path) == digest
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    listed = [{"md5": _md5(files[name]), "relpath": name} for name in sorted(files)]
    return f"{hashlib.md5(json.dumps(listed).encode()).hexdigest()}.dir" == digest


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
