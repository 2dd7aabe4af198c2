"""Where a report comes from: its Git revision, hashes of files and code, and its parameters."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import pjepa
from pjepa.core.text import markdown_table
from pjepa.report.markdown import text
from pjepa.report.page import Collapsible, Part
from pjepa.storage.reading import file_sha256, fingerprint

SHOWN = 16  # hex digits
# What a run is made from. Not dvc.lock and results: DVC rewrites them while it runs.
INPUTS = ("pjepa", "stages", "dvc.yaml", "params.yaml", "data/sources")


@dataclass(frozen=True)
class Revision:
    """The commit that is checked out, and the run's inputs that differ from it."""

    commit: str  # empty outside Git
    changed: tuple[str, ...] = ()
    date: str = ""  # of the commit, so that a rerun writes the same page


@dataclass(frozen=True)
class Origin:
    """Everything a report was made from."""

    params: Mapping[str, Any]
    data: Mapping[str, str]  # file -> sha256
    code: str  # one short hash over the tracked code
    code_files: int
    revision: Revision | None  # None: not asked for


def git_revision() -> Revision:
    """Return the revision of the current folder.

    Without Git, a repository or a commit it is empty.
    """
    head = _git("log", "-1", "--format=%H %cs")
    if head is None:
        return Revision("")
    commit, date = head.split()
    # -z: names as they are; --no-renames: one name per entry
    entries = (_git("status", "--porcelain", "--no-renames", "-z", "--", *INPUTS) or "").split("\0")
    return Revision(commit, tuple(entry[3:] for entry in entries if entry), date)


def read_origin(
    params: Mapping[str, Any],
    data: Iterable[Path],
    code: Sequence[Path],
    revision: Revision | None,
) -> Origin:
    """Return hashes of the files that exist; of code one hash of names and contents, in order."""
    joint = fingerprint([(path.as_posix(), file_sha256(path)) for path in code])
    hashes = {path.as_posix(): file_sha256(path) for path in data if path.is_file()}
    return Origin(params, hashes, joint, len(code), revision)


def origin_parts(origin: Origin) -> list[Part]:
    """Return revision, hashes of code and data, and all parameters, as parts of a page."""
    rows = [[f"`{name}`", f"`{value[:SHOWN]}`"] for name, value in origin.data.items()]
    return [
        "### Code",
        text("code", version=pjepa.__version__, origin=origin),
        "### Data",
        markdown_table(["file", "sha256"], rows),
        params_part(origin.params),
    ]


def dated(revision: Revision | None) -> str:
    """Return the date of the page: that of the commit it was made from, if it is named."""
    if revision is None or not revision.date:
        return "undated"
    changes = " with uncommitted changes" if revision.changed else ""
    return f"{revision.date} (commit {revision.commit[:8]}{changes})"


def params_part(params: Mapping[str, Any]) -> Collapsible:
    """Return all parameters of a run as YAML."""
    text = yaml.safe_dump(dict(params), sort_keys=False, default_flow_style=False)
    return Collapsible("All parameters", text, markdown=False)


def _git(*arguments: str) -> str | None:
    """Return what Git prints; None where it cannot say."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except OSError:  # not installed
        return None
    return None if done.returncode else done.stdout.decode(errors="replace")
