"""Reading the cells of experiments, branches or commits by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pjepa.core.section import read_params, read_section
from pjepa.core.tables import Classes, VideoRow, read_classes, read_videos
from pjepa.report.analyses import Maps, maps_from, medians_from
from pjepa.report.config import CellsConfig, ReportConfig
from pjepa.report.results import Cell, Predictions, read_cell, read_predictions
from pjepa.report.widgets import CURVES, Curve, read_curves
from pjepa.select.curve import JSON, ProbeCurve, read_curve
from pjepa.storage.reading import read_json
from pjepa.tools import paths
from pjepa.ui.console import InputError

WORKSPACE = "workspace"  # as DVC calls the files on disk
Key = tuple[str, str]  # probe, representation


@dataclass(frozen=True)
class Experiment:
    """One argument of `compare`: the cells that its params list."""

    name: str
    commit: str
    report: ReportConfig
    cells: Mapping[Key, Cell]
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fold(self) -> int:
        """Return which fold of a cross-validation was tested."""
        return int((self.params.get("data") or {}).get("fold", 1))

    @property
    def devices(self) -> str:
        """Return the kinds of device that computed features and cells, such as `cpu`."""
        used = {kind for cell in self.cells.values() for kind in cell.provenance.devices}
        fitted = {
            cell.settings["common"]["device"] for cell in self.cells.values() if cell.settings
        }
        return ", ".join(sorted(used | fitted)) or "not recorded"


@dataclass(frozen=True)
class ProjectFiles:
    """The project at one revision: its files are copied to `folder` as they are asked for."""

    source: Any  # a DVCFileSystem (Git- and DVC-tracked files alike); None: the files on disk
    folder: Path

    def local(self, path: Path) -> Path:
        """Return where to read one file."""
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

    def optional(self, path: Path) -> Path | None:
        """Return where to read a file that a revision may lack."""
        try:
            copied = self.local(path)
        except InputError:
            return None
        return copied if copied.is_file() else None


@dataclass(frozen=True)
class ExperimentDetails:
    """What a page shows of an experiment beyond its scores; None is what its report lacks."""

    classes: Classes
    predictions: Mapping[Key, Predictions]
    curves: Sequence[Curve]
    probe_curve: ProbeCurve
    analyses: Mapping[str, Any] | None
    maps: Maps | None
    videos: Sequence[VideoRow]


def read_experiment(name: str, probe: str | None = None) -> Experiment:
    """Return an experiment, branch, tag, commit or `workspace` with its cells, or one probe's."""
    with _project(name) as (files, commit):
        params = read_params(files.local(paths.PARAMS))
        listed = read_section(CellsConfig, "cells", params)
        report = read_section(ReportConfig, "report", params)
        if probe is not None and probe not in listed.probes:
            there = ", ".join(listed.probes)
            raise InputError(f"probe {probe!r} is not in its `cells`; there: {there}")
        probes = listed.probes if probe is None else (probe,)
        keys = [(p, r) for p in probes for r in listed.representations]
        cells = {}
        for key in keys:
            folder = paths.cell(*key)
            details, _ = (files.local(folder / name) for name in ("details.json", "metrics.json"))
            cells[key] = read_cell(*key, details.parent)
        return Experiment(name, commit, report, cells, params)


def read_details(name: str, keys: Sequence[Key]) -> ExperimentDetails:
    """Return the predictions of the given cells, training curves and analyses of an experiment."""
    with _project(name) as (files, _):
        predictions = {}
        for key in keys:
            table = files.local(paths.cell(*key) / "predictions.parquet")
            predictions[key] = read_predictions(table.parent)
        classes = files.local(paths.cell(*keys[0]) / "model" / "classes.json")
        for curve in CURVES:
            files.optional(paths.PRETRAIN_RESULTS / "plots" / "metrics" / f"{curve}.tsv")
        probed = files.optional(paths.CURVE / JSON)
        analyses, maps = _read_analyses(files)
        videos = files.optional(paths.VIDEOS_TABLE)
        return ExperimentDetails(
            read_classes(classes),
            predictions,
            read_curves(files.folder / paths.PRETRAIN_RESULTS),
            ProbeCurve() if probed is None else read_curve(probed),
            analyses,
            maps,
            [] if videos is None else read_videos(videos),
        )


def _read_analyses(files: ProjectFiles) -> tuple[Mapping[str, Any] | None, Maps | None]:
    """Return the analyses and the maps that a report wrote, as far as it did."""
    written = (files.optional(paths.REPORT / name) for name in ("analyses.json", "maps.json"))
    analyses, maps = (None if path is None else read_json(path) for path in written)
    if analyses is None or maps is None:
        return analyses, None
    try:
        medians = {name: medians_from(row) for name, row in analyses["map_paths"].items()}
        return analyses, maps_from(maps, medians)
    except (KeyError, TypeError, ValueError):  # written by another version
        return analyses, None


@contextmanager
def _project(name: str) -> Iterator[tuple[ProjectFiles, str]]:
    """Open a revision's files and yield them with its commit; errors are prefixed with its name."""
    source, commit = (None, WORKSPACE) if name == WORKSPACE else _revision(name)
    with TemporaryDirectory() as folder:
        try:
            yield ProjectFiles(source, Path(folder) if source is not None else Path()), commit
        except InputError as error:
            raise InputError(f"{name}: {str(error).removeprefix(f'{folder}/')}") from None


def _revision(name: str) -> tuple[Any, str]:
    """Return the files of a revision, and its commit."""
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
