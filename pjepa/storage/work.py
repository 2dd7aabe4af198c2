"""Work folders that survive an interrupted stage, so that a rerun resumes.

DVC deletes a stage's outs before it runs, so resume state lives in
`<dvc root>/.dvc/tmp/pjepa/<stage>/<fingerprint>-<code>/`. The fingerprint covers params and inputs,
so the state of another experiment is never resumed; the code covers what the stage tracks and the
version of torch, so no model is trained by two versions of a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import yaml

from pjepa.storage.reading import file_sha256, fingerprint
from pjepa.storage.writing import locked, named_disk_errors, partial_name, remove, remove_partials
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
    with locked(_lock_file(folder)) as alone:
        if not alone:
            raise InputError(
                f"{stage}: another process is running the same work; wait for it or stop it"
            )
        remove_partials(folder.parent)
        _forget_other_code(folder, stage, key)
        yield folder
        _discard(folder)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _forget_other_code(folder: Path, stage: str, key: str) -> None:
    """Remove, with a note, what other code began with the same settings and inputs."""
    for other in folder.parent.glob(f"{key}-*"):
        if other == folder or not other.is_dir():
            continue
        with locked(_lock_file(other)) as alone:
            if alone:
                say(f"{stage}: the code or torch changed since the interrupted run; starting over")
                _discard(other)


def _discard(folder: Path) -> None:
    """Remove a work folder in one step, so that a kill leaves no half of it to resume from."""
    gone = partial_name(folder)
    os.replace(folder, gone)
    remove(gone)


def code_version(stage: str, item: Mapping[str, str] | None = None) -> str:
    """Return a short hash of the stage's code and torch's version; `item` is a matrix cell."""
    files = tracked_code(stage, item or {})
    hashes = [(file.relative_to(ROOT).as_posix(), file_sha256(file)) for file in files]
    return fingerprint(version("torch"), hashes)[:12]


def tracked_code(stage: str, item: Mapping[str, str]) -> list[Path]:
    """Return the stage's Python files in dvc.yaml; without one, the whole package."""
    pipeline = ROOT / PIPELINE
    deps = ["pjepa"]
    if pipeline.is_file():
        deps = yaml.safe_load(pipeline.read_text(encoding="utf-8"))["stages"][stage]["deps"]
    for name, value in item.items():
        deps = [dep.replace(f"${{item.{name}}}", value) for dep in deps]
    code = [ROOT / dep for dep in deps if dep.split("/")[0] in ("pjepa", "stages")]
    files = {file for path in code for file in (path, *path.rglob("*.py"))}
    return sorted(file for file in files if file.is_file())
