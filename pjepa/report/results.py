"""The results as numbers: every cell, and the paired differences between representations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pjepa.core.runs import Spans, label_spans
from pjepa.core.tables import readable_table
from pjepa.metrics.bootstrap import Interval, Statistics, difference_intervals
from pjepa.metrics.segmentation import CLIP_METRIC, METRICS, TakeStatistics
from pjepa.report.config import ReportConfig
from pjepa.storage.reading import read_object
from pjepa.streams.provenance import Provenance
from pjepa.ui.console import InputError

REFERENCE = "raw"
REFERENCES = (REFERENCE, "segment_mean", "history")  # what every representation is held against
# Where the gain comes from: learning, position, and context without learning.
COMPARISONS = (
    ("pjepa", "raw"),
    ("pjepa", "random"),
    ("pjepa", "time"),
    ("pjepa_segment", "segment_mean"),
    ("pjepa", "history"),
)
OFFLINE = "offline"

CellFolder = Callable[[str, str], Path]  # probe, representation -> folder


@dataclass(frozen=True)
class CellStatistics:
    """Inputs of paired intervals: statistics per run (variant and seed), group per take."""

    variants: Sequence[Statistics]
    groups: Mapping[str, str]


@dataclass(frozen=True)
class Streamed:
    """A cell's scores when the future is hidden. Values are percent."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    statistics: CellStatistics
    seen: Mapping[str, Any]  # equals_offline, lookahead_s, boundaries, note ...

    @property
    def equals_offline(self) -> bool:
        return bool(self.seen["equals_offline"])


@dataclass(frozen=True)
class Cell:
    """One probe on one representation, as read from its folder. Values are percent."""

    probe: str
    representation: str
    folder: Path
    metrics: Mapping[str, float]
    paper: Mapping[str, float]  # of the supplement's fit; empty where there is only one
    intervals: Mapping[str, Interval]
    statistics: CellStatistics
    streamed: Mapping[str, Streamed]  # by protocol
    provenance: Provenance
    split: str
    convention: str
    selection: str  # what choices were made on: holdout | val | test | last
    labels: Mapping[str, Any]  # the label budget
    sight: Mapping[str, Any]  # how far ahead the probe itself sees, offline
    runs: int  # variants times seeds
    warnings: tuple[str, ...]
    readings: Mapping[str, float] = field(default_factory=dict)  # of the demo's truth, percent
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `probe.common` and the probe

    @property
    def given_boundaries(self) -> bool:
        """Return whether annotated boundaries of the reported takes went into the features."""
        return self.provenance.boundaries_test == "annotated"

    @property
    def used_labels(self) -> bool:
        """Return whether labels went into the features, to train them or to choose among them."""
        return self.provenance.train_labels or self.provenance.selection_labels != "none"


@dataclass(frozen=True)
class Difference:
    """How much better `first` is than `second`, per metric, on the same resampled groups."""

    probe: str
    first: str
    second: str
    intervals: Mapping[str, Interval]
    protocol: str = OFFLINE

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
        """Return the cells of one probe."""
        return [cell for cell in self.cells if cell.probe == probe]

    def cell(self, probe: str, representation: str) -> Cell | None:
        """Return one cell, or None if params do not list it."""
        return next((c for c in self.of_probe(probe) if c.representation == representation), None)

    def difference(
        self, probe: str, first: str, second: str, protocol: str = OFFLINE
    ) -> Difference | None:
        """Return one difference, or None if params do not list both sides."""
        key = (probe, first, second, protocol)
        mine = (d for d in self.differences if (d.probe, d.first, d.second, d.protocol) == key)
        return next(mine, None)


def read_results(
    probes: Sequence[str],
    representations: Sequence[str],
    folder: CellFolder,
    config: ReportConfig,
) -> Results:
    """Return the listed cells and their differences; raise for a missing cell."""
    cells = tuple(
        read_cell(probe, representation, folder(probe, representation))
        for probe in probes
        for representation in representations
    )
    if not cells:
        raise InputError("cells: no probe or no representation is listed; nothing to report")
    results = Results(cells, ())
    return replace(results, differences=tuple(_differences(results, config)))


def read_cell(probe: str, representation: str, folder: Path) -> Cell:
    """Return the cell in a folder."""
    if not (folder / "details.json").exists():
        raise InputError(f"{folder}: no such cell; run `dvc repro` or take it out of `cells`")
    try:
        details = read_object(folder / "details.json")
        fit, groups = details["fits"][0], details["groups"]
        intervals = _intervals(details["intervals"][fit])
        metrics = read_object(folder / "metrics.json")
        hidden = folder / "streaming.json"
        return Cell(
            probe=probe,
            representation=representation,
            folder=folder,
            metrics={name: metrics[name] for name in intervals},
            paper={n: metrics[f"paper_{n}"] for n in intervals if f"paper_{n}" in metrics},
            intervals=intervals,
            statistics=CellStatistics(_statistics(details["runs"][fit]), groups),
            streamed={
                protocol: Streamed(
                    entry.pop("metrics"),
                    _intervals(entry.pop("intervals")),
                    CellStatistics(_statistics(entry.pop("runs")), groups),
                    entry,
                )
                for protocol, entry in (read_object(hidden) if hidden.exists() else {}).items()
            },
            provenance=Provenance(**details["provenance"]),
            selection=details["selection"]["on"],
            runs=len(details["runs"][fit]),
            warnings=tuple(details["warnings"]),
            **{name: details[name] for name in ("split", "convention", "labels", "sight")},
            **{name: details[name] for name in ("readings", "settings") if name in details},
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{folder}: details.json or metrics.json is damaged, or of an older version; "
            "run `dvc repro`"
        ) from None


def _statistics(runs: Sequence[Mapping[str, Any]]) -> list[Statistics]:
    return [
        {take: TakeStatistics.from_dict(row) for take, row in run["statistics"].items()}
        for run in runs
    ]


def _intervals(stored: Mapping[str, Any]) -> dict[str, Interval]:
    """Return the intervals in the order of the paper's tables."""
    return {name: Interval(**stored[name]) for name in (*METRICS, CLIP_METRIC) if name in stored}


def _differences(results: Results, config: ReportConfig) -> Iterator[Difference]:
    """Yield every representation against the references, then the comparisons not among them.

    Streamed predictions are compared where they differ from the offline ones.
    """
    for probe in results.probes:
        cells = {cell.representation: cell for cell in results.of_probe(probe)}
        pairs = [(name, reference) for reference in REFERENCES for name in cells]
        for first, second in dict.fromkeys([*pairs, *COMPARISONS]):
            if first != second and first in cells and second in cells:
                a, b = cells[first], cells[second]
                compared = {OFFLINE: (a.statistics, b.statistics)}
                for protocol in (p for p in a.streamed if p in b.streamed):
                    ours, theirs = a.streamed[protocol], b.streamed[protocol]
                    if not (ours.equals_offline and theirs.equals_offline):
                        compared[protocol] = (ours.statistics, theirs.statistics)
                for protocol, sides in compared.items():
                    intervals = statistics_difference(*sides, a.convention, config)
                    yield Difference(probe, first, second, intervals, protocol)


def statistics_difference(
    first: CellStatistics, second: CellStatistics, convention: str, config: ReportConfig
) -> dict[str, Interval]:
    """Return the paired intervals of first - second, by metric."""
    return difference_intervals(
        first.variants, second.variants, first.groups, config.bootstrap, config.seed, convention
    )


# What a cell predicted for every token of the reported takes.


@dataclass(frozen=True)
class TakePrediction:
    """One take: time, true class, predicted class and its probability, per token [T]."""

    times: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    scores: np.ndarray

    @property
    def step_s(self) -> float:
        """Return how long a token lasts."""
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else 1.0

    @property
    def end_s(self) -> float:
        """Return when the last token ends."""
        return float(self.times[-1]) + self.step_s

    def spans(self, labels: np.ndarray) -> Spans:
        """Return the true or the predicted classes as spans of time."""
        return label_spans(labels, self.times, self.step_s)


Predictions = Mapping[str, TakePrediction]  # by take id, in the table's order


def read_predictions(folder: Path) -> Predictions:
    """Return the predictions of a cell's first run, by take."""
    path = folder / "predictions.parquet"
    with readable_table(path, "probe"):
        frame = pq.read_table(path).to_pandas()
        return {
            str(take): TakePrediction(
                rows["time_s"].to_numpy(np.float64),
                rows["label"].to_numpy(np.int64),
                rows["prediction"].to_numpy(np.int64),
                rows["score"].to_numpy(np.float64),
            )
            for take, rows in frame.groupby("take_id", sort=False)
        }
