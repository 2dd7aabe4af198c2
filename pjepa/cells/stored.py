"""Reading a cell's folder for the report: statistics of every run, offline and streamed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjepa.core.files import read_object
from pjepa.metrics.bootstrap import Statistics
from pjepa.metrics.statistics import TakeStatistics


@dataclass(frozen=True)
class CellStatistics:
    """Inputs of paired intervals: statistics per run (variant and seed), group per take."""

    variants: Sequence[Statistics]
    groups: Mapping[str, str]


def cell_statistics(folder: Path, fit: str | None = None) -> CellStatistics:
    """Return the per-take statistics of one fit of a cell; of its first fit by default."""
    details = read_object(folder / "details.json", "runs", "fits", "groups")
    runs = details["runs"][fit or details["fits"][0]]
    return CellStatistics(_statistics(runs), details["groups"])


def streamed_statistics(folder: Path, protocol: str) -> CellStatistics:
    """Return the per-take statistics of a cell's streamed predictions."""
    groups = read_object(folder / "details.json", "groups")["groups"]
    streamed = read_object(folder / "streaming.json", protocol)[protocol]
    return CellStatistics(_statistics(streamed["runs"]), groups)


def _statistics(runs: Sequence[Mapping[str, Any]]) -> list[Statistics]:
    return [
        {take: TakeStatistics.from_dict(row) for take, row in run["statistics"].items()}
        for run in runs
    ]
