"""One cell of the results: a probe on a representation, written as a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pjepa.core.runs import label_spans
from pjepa.core.section import Section
from pjepa.core.tables import Classes, read_classes, read_takes, write_classes
from pjepa.core.text import sheet_cell
from pjepa.metrics.bootstrap import intervals
from pjepa.metrics.segmentation import CONVENTIONS, METRICS, segmentation_scores
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.registry import probe_kind
from pjepa.probes.base.scoring import (
    CellData,
    FitResult,
    Labels,
    Prediction,
    Run,
    by_fit,
    habit_roles,
    probe_segments,
    take_roles,
)
from pjepa.probes.base.sparsity import Budget, budgeted_roles, label_budget
from pjepa.probes.base.streamed import cell_streaming
from pjepa.storage.writing import atomic_folder, write_csv, write_json
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.ui.console import InputError, say

# A cell's outputs for people and for `pjepa predict`: predictions, segments and the model.

PREDICTIONS = pa.schema(
    {
        "take_id": pa.string(),
        "time_s": pa.float64(),
        "label": pa.int32(),
        "prediction": pa.int32(),
        "score": pa.float32(),
    }
)


def write_predictions(
    folder: Path, result: FitResult, reader: StreamReader, labels: Labels, classes: Classes
) -> None:
    """Write `predictions.parquet`, `segments.csv` and `model/` of one fit."""
    result.probe.save(folder / "model")
    write_classes(folder / "model" / "classes.json", classes)
    segments: list[list[str]] = []
    with pq.ParquetWriter(folder / "predictions.parquet", PREDICTIONS) as file:
        for take, prediction in result.predictions.items():
            times = reader.read_layout(take).times
            columns = {
                "take_id": [take] * len(times),
                "time_s": times,
                "label": labels[take],
                "prediction": prediction.labels,
                "score": prediction.scores,
            }
            file.write_table(pa.Table.from_pydict(columns, schema=PREDICTIONS))
            rows = segment_rows(prediction, times, 1 / reader.info.fps, classes.names)
            segments += [[sheet_cell(take), *row] for row in rows]
    write_csv(folder / "segments.csv", ["take", "start", "end", "label", "score"], segments)


def segment_rows(
    prediction: Prediction, times: NDArray[np.float64], step: float, names: Sequence[str]
) -> list[list[str]]:
    """Return start, end, label name and mean score of every predicted run."""
    if not len(times):
        return []
    spans = label_spans(prediction.labels, times, step)
    means = np.add.reduceat(prediction.scores, spans.first) / (spans.end - spans.first)
    columns = (spans.begin_s, spans.until_s, spans.labels, means)
    return [
        [f"{begin:.3f}", f"{until:.3f}", sheet_cell(names[label]), f"{mean:.4f}"]
        for begin, until, label, mean in zip(*columns, strict=True)
    ]


# Everything behind a cell's means: intervals, conventions, provenance, choices, warnings.

CONVENTION = "release"
DISAGREEMENT = 3.0  # points of acc between two fits that deserve a warning
Fits = Mapping[str, Sequence[Run]]  # the first is the one that tables show


def cell_metrics(fits: Fits) -> dict[str, float]:
    """Return means over variants and seeds: the first fit plain, others under their name."""
    means: dict[str, float] = {}
    for number, (fit, runs) in enumerate(fits.items()):
        rows = [run.result.metrics() for run in runs]
        prefix = f"{fit}_" if number else ""
        means |= {prefix + name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return means


def cell_warnings(cell: CellData, metrics: Mapping[str, float], fits: Fits) -> list[str]:
    """Return what a reader of the numbers should know, a sentence each."""
    warnings = []
    if "paper_acc" in metrics:
        gap = metrics["acc"] - metrics["paper_acc"]
        if abs(gap) > DISAGREEMENT:
            warnings.append(
                f"the fits differ by {abs(gap):.1f} points of acc (converged {metrics['acc']:.1f}, "
                f"paper {metrics['paper_acc']:.1f}); trust the converged one"
            )
    stopped = [
        run.result.probe.details["iterations"]
        for run in fits.get("converged", ())
        if not run.result.probe.details["converged"]
    ]
    if stopped:
        warnings.append(
            f"the converged fit stopped after {stopped[0]} iterations above its tolerance; "
            "raise probe.linear.max_iterations"
        )
    if chose_on_reported(cell):
        warnings.append(f"chosen on {cell.roles.split}, the split that is reported: too high")
    return warnings


def chose_on_reported(cell: CellData) -> bool:
    """Return whether the reported takes also chose the epoch or the L2 strength."""
    return bool(set(cell.roles.holdout) & set(cell.roles.reported))


def cell_details(cell: CellData, fits: Fits, budget: Budget) -> dict[str, Any]:
    """Return everything behind the means, as JSON values."""
    roles, common = cell.roles, cell.common
    takes = {"fit": len(roles.fit), "holdout": len(roles.holdout), "reported": len(roles.reported)}
    return {
        "probe": cell.probe,
        "representation": cell.representation,
        "provenance": cell.readers[0].info.provenance.model_dump(mode="json"),
        "split": roles.split,
        "takes": takes,
        "groups": dict(roles.groups),
        "selection": {"on": common.select_on, "on_reported": chose_on_reported(cell)},
        "labels": asdict(budget),
        "sight": probe_sight(cell, next(iter(fits.values()))[0]),
        "convention": CONVENTION,
        "conventions": all_conventions(cell, next(iter(fits.values()))),
        "intervals": {fit: run_intervals(cell, runs) for fit, runs in fits.items()},
        "fits": list(fits),
        "runs": {fit: [run.to_dict() for run in runs] for fit, runs in fits.items()},
    }


def run_intervals(cell: CellData, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the interval of every metric over groups; runs are averaged in each resample."""
    variants = [run.result.statistics for run in runs]
    by_metric = intervals(variants, cell.roles.groups, cell.common.bootstrap, cell.common.seed)
    return {name: asdict(value) for name, value in by_metric.items()}


def probe_sight(cell: CellData, run: Run) -> dict[str, Any]:
    """Return how far the probe itself looks ahead offline, on top of the representation."""
    sight, reader = run.result.probe.sight, cell.readers[run.variant]
    takes = [reader.read_layout(take) for take in cell.roles.reported]
    ahead = [sight.lookahead_s(probe_segments(take.segment), take.times) for take in takes]
    return {"to": sight.to, "whole_take": sight.whole_take, "lookahead_s": max(ahead)}


def all_conventions(cell: CellData, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the metrics in every convention, means over variants and seeds."""
    truths = [cell.labels[take] for take in cell.roles.reported]
    rows = {CONVENTIONS[CONVENTION]: [run.result.metrics() for run in runs]}
    for name, rules in CONVENTIONS.items():
        if rules not in rows:  # those with equal rules share their scores
            guesses = [
                [run.result.predictions[take].labels for take in cell.roles.reported]
                for run in runs
            ]
            rows[rules] = [
                segmentation_scores(truths, labels, cell.classes.background, name)
                for labels in guesses
            ]
    return {
        name: {metric: float(np.mean([row[metric] for row in rows[rules]])) for metric in METRICS}
        for name, rules in CONVENTIONS.items()
    }


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
    first_fit = next(iter(fits.values()))
    metrics = cell_metrics(fits)
    warnings = cell_warnings(cell, metrics, fits)
    for warning in warnings:
        say(f"warning: {cell.name}: {warning}")
    streaming = cell_streaming(cell, first_fit)
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
        result = first_fit[0].result
        write_predictions(folder, result, cell.readers[0], cell.labels, cell.classes)
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
