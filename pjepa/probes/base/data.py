"""The inputs of a cell, and the result of each of its fits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pjepa.core.tables import Classes
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.probe import probe_segments
from pjepa.probes.base.roles import Labels, Roles
from pjepa.probes.base.scoring import FitResult, Targets
from pjepa.streams.store import StreamReader


@dataclass(frozen=True)
class CellData:
    """The inputs of a cell: the variants of a representation, labels, and roles of takes."""

    probe: str
    representation: str
    readers: tuple[StreamReader, ...]
    labels: Labels
    takes: pd.DataFrame
    classes: Classes
    roles: Roles
    common: ProbeCommonConfig

    @property
    def name(self) -> str:
        return f"probe {self.probe} on {self.representation}"

    @property
    def targets(self) -> Targets:
        """Return the targets of the probe."""
        return Targets(self.labels, self.roles, len(self.classes.names), self.classes.background)


@dataclass(frozen=True)
class TakeSource:
    """Features and segments of one stream by take id."""

    reader: StreamReader

    def features(self, take: str) -> NDArray[np.float32]:
        return self.reader.read(take).features

    def segments(self, take: str) -> NDArray[np.int64]:
        return probe_segments(self.reader.read_layout(take).segment)


@dataclass(frozen=True)
class Run:
    """One fit: which way, on which variant, with which seed (None: the fit draws nothing)."""

    fit: str
    variant: int
    seed: int | None
    result: FitResult

    def to_dict(self) -> dict[str, Any]:
        """Return everything about the run as JSON values."""
        statistics = {take: row.to_dict() for take, row in self.result.statistics.items()}
        return {
            "variant": self.variant,
            "seed": self.seed,
            "metrics": self.result.metrics(),
            "fit": self.result.probe.details,
            "statistics": statistics,
        }


def by_fit(runs: list[Run]) -> dict[str, list[Run]]:
    """Return the runs of every fit; the first fit is the one that tables show."""
    names = dict.fromkeys(run.fit for run in runs)
    return {name: [run for run in runs if run.fit == name] for name in names}
