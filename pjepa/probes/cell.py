"""One cell of the results: a probe on a representation, written as a folder (design: Cells)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.trained import TrainedConfig
from pjepa.errors import InputError
from pjepa.probes.artifacts import write_predictions
from pjepa.probes.cell_details import cell_details, cell_metrics, cell_warnings
from pjepa.probes.cell_runs import CellData, Run, by_fit, linear_runs, trained_runs
from pjepa.probes.cell_streaming import cell_streaming
from pjepa.probes.roles import habit_roles, take_roles
from pjepa.probes.sparsity import Budget, budgeted_roles, label_budget
from pjepa.progress import say
from pjepa.streams.store import StreamReader, read_labels
from pjepa.takes.manifest import read_classes, read_takes
from pjepa.work import whole_folder, write_json


@dataclass(frozen=True)
class CellInputs:
    """Where a cell reads: the variants of one representation, labels, and the takes tables."""

    streams: Sequence[Path]
    labels: Path
    takes: Path
    classes: Path


def run_cell(
    inputs: CellInputs,
    out: Path,
    probe: str,
    representation: str,
    common: ProbeCommonConfig,
    config: LinearConfig | TrainedConfig,
    work: Path | None = None,
) -> dict[str, float]:
    """Return the cell's metrics after writing its folder `out`.

    Metrics are means over variants and seeds; predictions, segments and model are those of the
    first variant and seed. A killed training goes on from its state in `work`.
    """
    cell, budget = open_cell(inputs, probe, representation, common)
    runs = fitted_runs(cell, config, work)
    fits = by_fit(runs)
    shown = next(iter(fits.values()))
    metrics = cell_metrics(fits)
    warnings = cell_warnings(cell, metrics, fits)
    for warning in warnings:
        say(f"warning: {cell.name}: {warning}")
    streaming = cell_streaming(cell, shown)
    with whole_folder(out) as folder:
        write_json(folder / "metrics.json", metrics)
        write_json(
            folder / "details.json", {**cell_details(cell, fits, budget), "warnings": warnings}
        )
        if streaming:
            write_json(folder / "streaming.json", streaming)
        first = shown[0].result
        write_predictions(folder, first, cell.readers[0], cell.labels, cell.classes)
    return metrics


def fitted_runs(
    cell: CellData, config: LinearConfig | TrainedConfig, work: Path | None
) -> list[Run]:
    """Return every fit of the cell."""
    if isinstance(config, LinearConfig):
        return list(linear_runs(cell, config))
    runs = list(trained_runs(cell, config, work))
    for run in runs:
        details = run.result.probe.details
        say(
            f"{cell.name}, variant {run.variant + 1}/{len(cell.readers)}, seed {run.seed}: "
            f"acc {run.result.metrics()['acc']:.1f} on {cell.roles.split} "
            f"(epoch {details['epoch']} of {details['epochs']}, by {cell.common.select_on})"
        )
    return runs


def open_cell(
    inputs: CellInputs, probe: str, representation: str, common: ProbeCommonConfig
) -> tuple[CellData, Budget]:
    """Return a cell's inputs under the roles that `common` asks for, and its label budget."""
    if not inputs.streams:
        raise InputError(
            f"representation {representation}: no stream found; run `dvc repro features`"
        )
    labels, classes = read_labels(inputs.labels), read_classes(inputs.classes)
    takes = read_takes(inputs.takes)
    readers = tuple(StreamReader(path) for path in inputs.streams)
    before = habit_roles(take_roles(takes, labels), takes, labels, common.select_on)
    thinned = common.select_on == "holdout"
    roles = budgeted_roles(before, labels, common.label_fraction, common.seed, thinned)
    budget = label_budget(before, roles, common.label_fraction, readers[0].info.provenance)
    return CellData(probe, representation, readers, labels, classes, roles, common), budget
