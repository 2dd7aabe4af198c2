"""Where a report comes from: hashes of the files it read, of its code, and its parameters.

The Git revision is not among them: it is no input of the stage, and the same inputs must give the
same bytes. The commit that holds a report's dvc.lock names it; `pjepa compare --html` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from pjepa.report.text import markdown_table
from pjepa.work import file_sha256

SHOWN = 16  # hex digits


@dataclass(frozen=True)
class Origin:
    """Everything a report was made from."""

    params: Mapping[str, Any]
    data: Mapping[str, str]  # file -> sha256
    code: str  # one sha256 over the tracked code
    code_files: int


def read_origin(params: Mapping[str, Any], data: Iterable[Path], code: Sequence[Path]) -> Origin:
    """Hashes of the files that exist; code files are hashed by name and content, in order."""
    joint = hashlib.sha256()
    for path in code:
        joint.update(f"{path.as_posix()}\0{file_sha256(path)}\n".encode())
    hashes = {path.as_posix(): file_sha256(path) for path in data if path.is_file()}
    return Origin(params, hashes, joint.hexdigest(), len(code))


def origin_parts(origin: Origin) -> list[str]:
    """Code and data hashes as Markdown."""
    rows = [[f"`{name}`", f"`{value[:SHOWN]}`"] for name, value in origin.data.items()]
    return [
        f"Code: pjepa {_version()}; the {origin.code_files} files that dvc.yaml tracks for "
        f"`report` have the sha256 `{origin.code[:SHOWN]}`. The Git revision is no input of this "
        "page (the same inputs give the same bytes): `git log -1 -- dvc.lock` names the commit "
        "that holds it, and that commit's dvc.lock the hash of every file of code and data of "
        "every stage.",
        "### Data",
        markdown_table(["file", "sha256"], rows),
    ]


def params_text(params: Mapping[str, Any]) -> str:
    """All parameters of the run as YAML."""
    return yaml.safe_dump(dict(params), sort_keys=False, default_flow_style=False)


def _version() -> str:
    try:
        return version("pjepa")
    except PackageNotFoundError:
        return "(not installed)"
