"""The results as numbers: every cell, and the paired differences between representations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pjepa.config.report import ReportConfig
from pjepa.errors import InputError
from pjepa.metrics.bootstrap import Interval, difference_interval
from pjepa.metrics.segmentation import METRICS
from pjepa.probes.cell import CellStatistics, cell_statistics
from pjepa.streams.schema import Provenance
from pjepa.work import read_json

REFERENCE = "raw"
# Where the gain comes from: learning, position, and context without learning.
COMPARISONS = (
    ("pjepa", "raw"),
    ("pjepa", "random"),
    ("pjepa", "time"),
    ("pjepa_segment", "segment_mean"),
    ("pjepa", "history"),
)

CellFolder = Callable[[str, str], Path]  # probe, representation -> folder


@dataclass(frozen=True)
class Cell:
    """One probe on one representation, as its folder tells it. Values are percent."""

    probe: str
    representation: str
    folder: Path
    metrics: Mapping[str, float]
    paper: Mapping[str, float]
    intervals: Mapping[str, Interval]
    statistics: CellStatistics
    provenance: Provenance
    split: str
    convention: str
    warnings: tuple[str, ...]

    @property
    def given_boundaries(self) -> bool:
        """Whether annotated boundaries of the reported takes went into the features."""
        return self.provenance.boundaries_test == "annotated"


@dataclass(frozen=True)
class Difference:
    """How much better `first` is than `second`, per metric, on the same resampled groups."""

    probe: str
    first: str
    second: str
    intervals: Mapping[str, Interval]

    @property
    def name(self) -> str:
        return f"{self.first} - {self.second}"


@dataclass(frozen=True)
class Results:
    """All cells in the order of params, and their differences."""

    cells: tuple[Cell, ...]
    differences: tuple[Difference, ...]

    @property
    def probes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.probe for cell in self.cells))

    def of_probe(self, probe: str) -> list[Cell]:
        """The cells of one probe."""
        return [cell for cell in self.cells if cell.probe == probe]

    def cell(self, probe: str, representation: str) -> Cell | None:
        """One cell, or None if params do not list it."""
        found = [c for c in self.of_probe(probe) if c.representation == representation]
        return found[0] if found else None

    def difference(self, probe: str, first: str, second: str) -> Difference | None:
        """One difference, or None if params do not list both sides."""
        wanted = (probe, first, second)
        found = [d for d in self.differences if (d.probe, d.first, d.second) == wanted]
        return found[0] if found else None


def read_results(
    probes: Sequence[str],
    representations: Sequence[str],
    folder: CellFolder,
    config: ReportConfig,
) -> Results:
    """The listed cells and their differences; a cell that is not there is named."""
    cells = tuple(
        read_cell(probe, representation, folder(probe, representation))
        for probe in probes
        for representation in representations
    )
    if not cells:
        raise InputError("cells: no probe or no representation is listed; nothing to report")
    return Results(cells, _differences(cells, config))


def read_cell(probe: str, representation: str, folder: Path) -> Cell:
    """One cell's folder."""
    if not (folder / "details.json").exists():
        raise InputError(f"{folder}: no such cell; run `dvc repro` or take it out of `cells`")
    details, metrics = read_json(folder / "details.json"), read_json(folder / "metrics.json")
    converged = details["intervals"]["converged"]
    return Cell(
        probe=probe,
        representation=representation,
        folder=folder,
        metrics={name: metrics[name] for name in METRICS},
        paper={name: metrics[f"paper_{name}"] for name in METRICS},
        intervals={name: Interval(**converged[name]) for name in METRICS},
        statistics=cell_statistics(folder),
        provenance=Provenance(**details["provenance"]),
        split=details["split"],
        convention=details["convention"],
        warnings=tuple(details["warnings"]),
    )


def _differences(cells: Sequence[Cell], config: ReportConfig) -> tuple[Difference, ...]:
    """Every representation against raw, then the comparisons that are not among them."""
    found = []
    for probe in dict.fromkeys(cell.probe for cell in cells):
        mine = {cell.representation: cell for cell in cells if cell.probe == probe}
        pairs = [(name, REFERENCE) for name in mine if name != REFERENCE]
        pairs += [pair for pair in COMPARISONS if pair not in pairs]
        found += [
            _difference(mine[first], mine[second], config)
            for first, second in pairs
            if first in mine and second in mine
        ]
    return tuple(found)


def _difference(first: Cell, second: Cell, config: ReportConfig) -> Difference:
    intervals = {
        name: difference_interval(
            first.statistics.variants,
            second.statistics.variants,
            first.statistics.groups,
            name,
            config.bootstrap,
            config.seed,
            first.convention,
        )
        for name in METRICS
    }
    return Difference(first.probe, first.representation, second.representation, intervals)
