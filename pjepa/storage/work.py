"""Work folders that survive an interrupted stage, so that a rerun resumes.

DVC deletes a stage's outs before it runs, so resume state lives in
`<dvc root>/.dvc/tmp/pjepa/<stage>/<fingerprint>-<code>/`. The fingerprint covers params and inputs,
so the state of another experiment is never resumed; the code covers what the stage tracks and the
version of torch, so no model is trained by two versions of a program.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import yaml
from filelock import FileLock, Timeout

from pjepa.storage.writing import named_disk_errors, partial_name, remove, remove_partials
from pjepa.ui.console import InputError, say

ROOT = Path(__file__).resolve().parents[2]  # of the code that runs
PIPELINE = "dvc.yaml"


def work_root() -> Path:
    """Return where resume state lives; workspace, temporary and queued runs share it."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dvc" / "tmp" / "pjepa"


@contextmanager
def work_folder(stage: str, key: str, item: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield this run's work folder, locked, and remove it when the stage succeeds.

    `item` names the cell of a stage that is a matrix.
    """
    folder = work_root() / stage / f"{key}-{code_version(stage, item)}"
    with named_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder) as alone:
        if not alone:
            raise InputError(
                f"{stage}: another process is running the same work; wait for it or stop it"
            )
        remove_partials(folder.parent)
        _forget_other_code(folder, stage, key)
        yield folder
        _discard(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock in the block; yield whether this process got it."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _forget_other_code(folder: Path, stage: str, key: str) -> None:
    """Remove, with a note, what other code began with the same settings and inputs."""
    for other in folder.parent.glob(f"{key}-*"):
        if other == folder or not other.is_dir():
            continue
        with _locked(other) as alone:
            if alone:
                say(f"{stage}: the code or torch changed since the interrupted run; starting over")
                _discard(other)


def _discard(folder: Path) -> None:
    """Remove a work folder in one step, so that a kill leaves no half of it to resume from."""
    gone = partial_name(folder)
    os.replace(folder, gone)
    remove(gone)


def code_version(stage: str, item: Mapping[str, str] | None = None) -> str:
    """Return a short hash of the stage's code and torch's version; `item` is a matrix cell.

    Parsed, so that comments, docstrings and layout do not count.
    """
    digest = hashlib.sha256(version("torch").encode())
    for file in tracked_code(stage, item or {}):
        digest.update(f"{file.relative_to(ROOT)}\n{parsed(file)}".encode())
    return digest.hexdigest()[:12]


def tracked_code(stage: str, item: Mapping[str, str]) -> list[Path]:
    """Return the stage's Python files in dvc.yaml; without one, the whole package."""
    pipeline = ROOT / PIPELINE
    deps = ["pjepa"]
    if pipeline.is_file():
        deps = yaml.safe_load(pipeline.read_text(encoding="utf-8"))["stages"][stage]["deps"]
    for name, value in item.items():
        deps = [dep.replace(f"${{item.{name}}}", value) for dep in deps]
    places = [ROOT / dep for dep in deps if dep.split("/")[0] in ("pjepa", "stages")]
    files = {file for place in places for file in (place, *place.rglob("*.py"))}
    return sorted(file for file in files if file.is_file())


@lru_cache
def parsed(file: Path) -> str:
    """Return the syntax tree of a file without its docstrings."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
