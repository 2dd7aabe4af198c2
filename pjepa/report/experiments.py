"""Reading the cells of experiments, branches or commits by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pjepa import paths
from pjepa.config.cells import CellsConfig
from pjepa.config.report import ReportConfig
from pjepa.config.section import read_params, read_section
from pjepa.errors import InputError
from pjepa.report.results import Cell, read_cell

WORKSPACE = "workspace"  # as DVC calls the files on disk
Key = tuple[str, str]  # probe, representation


@dataclass(frozen=True)
class Experiment:
    """One argument of `compare`: the cells that its params list."""

    name: str
    commit: str
    report: ReportConfig
    cells: Mapping[Key, Cell]


@dataclass(frozen=True)
class ProjectFiles:
    """The project at one revision: its files are copied to `folder` as they are asked for."""

    source: Any  # a DVCFileSystem (Git- and DVC-tracked files alike); None: the files on disk
    folder: Path

    def local(self, path: Path) -> Path:
        """Where to read one file."""
        if self.source is None:
            return path
        from dvc.exceptions import DvcException
        from dvc_data.index import DataIndexError

        copied = self.folder / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        # The project may be a folder of its repository.
        project = Path.cwd().relative_to(Path(self.source.repo.scm.root_dir).resolve())
        try:
            copied.write_bytes(self.source.read_bytes((project / path).as_posix()))
        except (OSError, DvcException, DataIndexError) as error:
            todo = "run it there (`dvc exp run`), or `dvc pull` what was run elsewhere"
            raise InputError(f"{path}: cannot be read ({_reason(error)}); {todo}") from None
        return copied

    def cell(self, key: Key) -> Cell:
        """One cell; an old revision may have written it in another form."""
        folder = paths.cell(*key)
        details, _ = (self.local(folder / name) for name in ("details.json", "metrics.json"))
        try:
            return read_cell(*key, details.parent)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{folder}: written by another version; run it again") from None


def read_experiment(name: str, probe: str | None = None) -> Experiment:
    """An experiment, branch, tag, commit or `workspace` with its cells, or one probe's."""
    source, commit = (None, WORKSPACE) if name == WORKSPACE else _revision(name)
    with TemporaryDirectory() as folder:
        files = ProjectFiles(source, Path(folder))
        try:
            params = read_params(files.local(paths.PARAMS))
            listed = read_section(CellsConfig, "cells", params)
            report = read_section(ReportConfig, "report", params)
            if probe is not None and probe not in listed.probes:
                known = ", ".join(listed.probes)
                raise InputError(f"probe {probe!r} is not in its `cells`; there: {known}")
            probes = listed.probes if probe is None else (probe,)
            keys = [(p, r) for p in probes for r in listed.representations]
            cells = {key: files.cell(key) for key in keys}
        except InputError as error:
            raise InputError(f"{name}: {str(error).removeprefix(f'{folder}/')}") from None
    return Experiment(name, commit, report, cells)


def _revision(name: str) -> tuple[Any, str]:
    """The files of a revision, and its commit."""
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException

    try:
        source = DVCFileSystem(rev=name, subrepos=True)
        return source, source.repo.get_rev()
    except DvcException as error:
        raise InputError(
            f"{name}: no such experiment, branch, tag or commit ({_reason(error)}); "
            "`dvc exp list --all-commits` shows the experiments"
        ) from None


def _reason(error: Exception) -> str:
    return " ".join((getattr(error, "strerror", None) or str(error)).split())
