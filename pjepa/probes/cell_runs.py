"""Every fit of a cell: one per variant of the representation and per seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.trained import TrainedConfig
from pjepa.errors import InputError
from pjepa.probes.fit import FITS, FitResult, fit_and_score, score_probe
from pjepa.probes.probe import probe_segments
from pjepa.probes.roles import Labels, Roles
from pjepa.probes.temporal import Task
from pjepa.probes.trained import fit_trained, read_probe_takes
from pjepa.progress import Meter, say
from pjepa.streams.store import StreamReader
from pjepa.takes.manifest import Classes

TRAINED = "trained"


@dataclass(frozen=True)
class CellData:
    """What a cell is made of: the variants of a representation, labels, and who does what."""

    probe: str
    representation: str
    readers: tuple[StreamReader, ...]
    labels: Labels
    classes: Classes
    roles: Roles
    common: ProbeCommonConfig

    @property
    def name(self) -> str:
        return f"probe {self.probe} on {self.representation}"


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


def linear_runs(cell: CellData, config: LinearConfig) -> Iterator[Run]:
    """Yield the optimum once per variant, and the paper's fit once per variant and seed."""
    count, background = len(cell.classes.names), cell.classes.background
    for variant, reader in enumerate(cell.readers):
        source = TakeSource(reader)
        for place, seed in enumerate(cell.common.seeds):
            common = cell.common.model_copy(update={"seeds": (seed,)})
            fits = FITS if place == 0 else ("paper",)
            found = fit_and_score(
                source.features, cell.labels, cell.roles, count, background, common, config,
                fits, source.segments,
            )  # fmt: skip
            for fit, result in found.items():
                yield Run(fit, variant, None if fit == "converged" else seed, result)
            if place == 0:
                _say_linear(cell, variant, found)


def trained_runs(cell: CellData, config: TrainedConfig, work: Path | None) -> Iterator[Run]:
    """Yield one training per variant and seed; those a killed run left in `work` go on."""
    choosing = cell.common.select_on != "last"
    if choosing and not cell.roles.holdout:
        raise InputError(
            f"{cell.name}: no labelled held-out train take to choose the epoch on; "
            "set probe.common.select_on=last"
        )
    total = config.epochs * len(cell.readers) * len(cell.common.seeds)
    task = Task(cell.readers[0].info.width, len(cell.classes.names), cell.classes.background)
    with Meter(cell.name, total, "epoch") as meter:
        for variant, reader in enumerate(cell.readers):
            takes = read_probe_takes(reader, cell.labels, cell.roles.fit)
            choose = read_probe_takes(reader, cell.labels, cell.roles.holdout)
            source = TakeSource(reader)
            for seed in cell.common.seeds:
                state = None if work is None else work / f"{variant}-{seed}.pt"
                probe = fit_trained(
                    cell.probe, config, takes, choose, task, cell.common, seed, state,
                    meter.advance,
                )  # fmt: skip
                result = score_probe(
                    probe, source.features, source.segments, cell.labels, cell.roles,
                    task.background,
                )  # fmt: skip
                yield Run(TRAINED, variant, seed, result)


def by_fit(runs: list[Run]) -> dict[str, list[Run]]:
    """Return the runs of every fit; the first fit is the one that tables show."""
    names = dict.fromkeys(run.fit for run in runs)
    return {name: [run for run in runs if run.fit == name] for name in names}


def _say_linear(cell: CellData, variant: int, found: dict[str, FitResult]) -> None:
    acc = {fit: f"{result.metrics()['acc']:.1f}" for fit, result in found.items()}
    where = f"{variant + 1}/{len(cell.readers)} on {cell.roles.split}"
    say(f"{cell.name} {where}: acc {acc['converged']} (paper fit {acc['paper']})")
