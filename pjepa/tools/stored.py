"""`pjepa doctor --verify`: every byte on disk against the hash it was written with, like git fsck.

The patch store, the states of interrupted runs and live states below the working folder have hashes
beside them, DVC's cache names its files by their md5, and dvc.lock has the md5 of every out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pjepa.core.section import read_params, read_section
from pjepa.report.config import CellsConfig
from pjepa.storage.reading import read_yaml
from pjepa.storage.saver import TENSORS
from pjepa.storage.sealed import BEFORE, SEAL, intact, seal_of
from pjepa.storage.work import work_root
from pjepa.tools import paths
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
    """Return `place value (was value)` of every parameter that has changed since the last run."""
    params, changed = read_params(), {}
    for name, value in _recorded(read_section(CellsConfig, "cells", params)):
        before, now = flat({name: value}), flat({name: _section(params, name)})
        for place in {**before, **now}:
            if before.get(place) != now.get(place):
                changed[place] = f"{place} {_shown(now, place)} (was {_shown(before, place)})"
    return list(changed.values())


def _recorded(cells: CellsConfig) -> Iterator[tuple[str, Any]]:
    """Yield the sections that results were made with; dvc.lock keeps cells of earlier runs too."""
    wanted = {f"probe@{p}-{r}" for p in cells.probes for r in cells.representations}
    for name, stage in locked_stages().items():
        if name in wanted or not name.startswith("probe@"):
            sections = (stage.get("params") or {}).get(str(PARAMS)) or {}
            yield from ((part, value) for part, value in sections.items() if part not in LOOKS)


def flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return nested sections as one, by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{place}{name}.")
        else:
            found[f"{place}{name}"] = value
    return found


def _section(params: Mapping[str, Any], name: str) -> Any:
    value: Any = params
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _shown(values: Mapping[str, Any], place: str) -> str:
    return str(values[place]) if place in values else "not set"


REMAKE = "remove it, then `dvc repro`"


@dataclass(frozen=True)
class Suspect:
    """A file, how it is judged, and what to do if it is not what was written."""

    path: Path
    good: Callable[[], bool]
    remedy: str


def damage(threads: int) -> Iterator[str]:
    """Yield one line per file that is not as written, then how many were read."""
    suspects = [*sealed_files(), *cached_files(), *workspace_files()]
    with ThreadPoolExecutor(threads) as pool:
        judged = pool.map(lambda suspect: suspect.good(), suspects)
        tracked = track(judged, "verify", total=len(suspects), unit="file")
        for suspect, good in zip(suspects, tracked, strict=True):
            if not good:
                yield f"{suspect.path}: is not what was written; {suspect.remedy}"
    say(f"verified: {len(suspects)} files and folders")


def sealed_files() -> Iterator[Suspect]:
    """Yield files of the patch store, interrupted runs and live states, with earlier ones."""
    for seal in [*sorted(work_root().rglob(f"*{SEAL}")), *live_seals()]:
        path = seal.with_name(seal.name.removesuffix(SEAL))
        for kept in (path, path.with_name(f"{path.name}{BEFORE}")):
            if kept.is_file() and seal_of(kept) == seal:
                yield Suspect(kept, partial(intact, kept), "the next run makes it anew")


def live_seals() -> Iterator[Path]:
    """Yield the hashes of live states (`pjepa stream --state`) below the working folder."""
    for folder, inner, files in os.walk("."):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if f"{TENSORS}{SEAL}" in files:
            yield Path(folder) / f"{TENSORS}{SEAL}"


def cache() -> Path:
    """Return the folder of DVC's cache."""
    from dvc.repo import Repo

    return Path(Repo().cache.local.path)


def cached_files() -> Iterator[Suspect]:
    """Yield the files of DVC's cache, which are named by their md5."""
    if not LOCK.is_file():
        return
    for path in sorted(cache().glob("[0-9a-f][0-9a-f]/*")):
        digest = path.parent.name + path.name.removesuffix(".dir")
        hint = "remove it and every link to it, then `dvc repro` or `dvc pull`"
        yield Suspect(path, partial(same_as_locked, path, digest), hint)


def workspace_files() -> Iterator[Suspect]:
    """Yield the outs that dvc.lock lists and that are here, file by file."""
    stages = locked_stages()
    kept = cache() if stages else Path()
    for stage in stages.values():
        for out in stage.get("outs", []):
            path, digest = Path(out["path"]), str(out.get("md5", ""))
            if path.exists():
                for file, expected in listed_files(path, digest, kept):
                    yield Suspect(file, partial(same_as_locked, file, expected), REMAKE)


def listed_files(path: Path, digest: str, kept: Path) -> list[tuple[Path, str]]:
    """Return the files of an out with their md5; the folder, if the cache does not list it."""
    listing = kept / digest[:2] / digest[2:]
    if not path.is_dir() or not listing.is_file() or file_md5(listing) != digest[:32]:
        return [(path, digest)]
    entries = json.loads(listing.read_text(encoding="utf-8"))
    return [(path / entry["relpath"], entry["md5"]) for entry in entries]


def same_as_locked(path: Path, digest: str) -> bool:
    """Return whether a file, or the files of a folder, are those of dvc.lock."""
    if not path.is_dir():
        return path.is_file() and file_md5(path) == digest
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed: list[dict[str, Any]] = [
        {"md5": file_md5(file), "relpath": file.relative_to(path).as_posix()} for file in files
    ]
    listed.sort(key=lambda entry: entry["relpath"])
    text = json.dumps(listed, sort_keys=True).encode()
    return f"{hashlib.md5(text).hexdigest()}.dir" == digest


def file_md5(path: Path) -> str:
    """Return DVC's hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def threads() -> int:
    """Return the threads for reading: as many as params give the stages."""
    from pjepa.core.machine import MachineConfig
    from pjepa.core.section import read_section

    return read_section(MachineConfig, "machine").workers if paths.PARAMS.is_file() else 2
