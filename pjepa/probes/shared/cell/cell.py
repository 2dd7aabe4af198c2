"""One cell of the results: a probe on a representation, written as a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pjepa.core.files import atomic_folder, write_json
from pjepa.core.section import Section
from pjepa.core.tables import read_classes, read_takes
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.data import CellData, by_fit
from pjepa.probes.base.registry import probe_kind
from pjepa.probes.base.roles import habit_roles, take_roles
from pjepa.probes.shared.cell.artifacts import write_predictions
from pjepa.probes.shared.cell.details import cell_details, cell_metrics, cell_warnings
from pjepa.probes.shared.cell.sparsity import Budget, budgeted_roles, label_budget
from pjepa.probes.shared.cell.streamed import cell_streaming
from pjepa.streams.store import StreamReader, read_labels
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say


@dataclass(frozen=True)
class CellInputs:
    """Where a cell reads: the variants of one representation, labels, and the takes tables."""

    streams: Sequence[Path]
    labels: Path
    takes: Path
    classes: Path
    truth: Path | None = None  # the demo's own


def run_cell(
    inputs: CellInputs,
    out: Path,
    probe: str,
    representation: str,
    common: ProbeCommonConfig,
    config: Section,
    work: Path | None = None,
) -> dict[str, float]:
    """Return the cell's metrics after writing its folder `out`.

    Metrics are means over variants and seeds; predictions, segments and model are those of the
    first variant and seed. An interrupted training resumes from its state in `work`.
    """
    cell, budget = open_cell(inputs, probe, representation, common)
    kind = probe_kind(probe)
    fits = by_fit(list(kind.fits(cell, config, work)))
    shown = next(iter(fits.values()))
    metrics = cell_metrics(fits)
    warnings = cell_warnings(cell, metrics, fits)
    for warning in warnings:
        say(f"warning: {cell.name}: {warning}")
    streaming = cell_streaming(cell, shown)
    readings = kind.readings(cell, config, inputs.truth) if inputs.truth else {}
    with atomic_folder(out) as folder:
        write_json(folder / "metrics.json", metrics)
        settings = {"common": common.resume_key(), probe: config.model_dump(mode="json")}
        details = cell_details(cell, fits, budget) | {
            "settings": settings,
            "warnings": warnings,
            "readings": readings,
        }
        write_json(folder / "details.json", details)
        if streaming:
            write_json(folder / "streaming.json", streaming)
        first = shown[0].result
        write_predictions(folder, first, cell.readers[0], cell.labels, cell.classes)
    return metrics


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
    return CellData(probe, representation, readers, labels, takes, classes, roles, common), budget
