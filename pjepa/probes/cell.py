"""One cell of the results: a probe on a representation, written as a folder (design: Cells)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.errors import InputError
from pjepa.metrics.bootstrap import Statistics, interval
from pjepa.metrics.segmentation import (
    CONVENTIONS,
    METRICS,
    TakeStatistics,
    segmentation_scores,
)
from pjepa.probes.artifacts import write_predictions
from pjepa.probes.fit import FITS, FitResult, Labels, Roles, fit_and_score, take_roles
from pjepa.progress import say
from pjepa.streams.store import StreamReader, read_labels
from pjepa.takes.manifest import Classes, read_classes, read_takes
from pjepa.work import read_json, whole_folder, write_json

CONVENTION = "release"
DISAGREEMENT = 3.0  # points of acc between the two fits that deserve a warning


@dataclass(frozen=True)
class CellInputs:
    """Where a cell reads: the variants of one representation, labels, and the takes tables."""

    streams: Sequence[Path]
    labels: Path
    takes: Path
    classes: Path


@dataclass(frozen=True)
class CellStatistics:
    """What `report` needs for paired intervals: statistics per variant, group per take."""

    variants: Sequence[Statistics]
    groups: Mapping[str, str]


def run_cell(
    inputs: CellInputs,
    out: Path,
    probe: str,
    representation: str,
    common: ProbeCommonConfig,
    linear: LinearConfig,
) -> dict[str, float]:
    """Return the cell's metrics after writing its folder `out`.

    Metrics are means over variants; predictions, segments and model are the first variant's
    converged fit.
    """
    if not inputs.streams:
        raise InputError(
            f"representation {representation}: no stream found; run `dvc repro features`"
        )
    labels, classes = read_labels(inputs.labels), read_classes(inputs.classes)
    roles = take_roles(read_takes(inputs.takes), labels)
    readers = [StreamReader(path) for path in inputs.streams]
    results = []
    for index, reader in enumerate(readers):
        results.append(_variant(reader, labels, roles, classes, common, linear))
        found = {fit: f"{results[-1][fit].metrics()['acc']:.1f}" for fit in FITS}
        where = f"{index + 1}/{len(readers)} on {roles.split}"
        say(
            f"probe {probe} on {representation} {where}: acc {found['converged']} "
            f"(paper fit {found['paper']})"
        )
    metrics = _metrics(results)
    warnings = _warnings(metrics, results)
    for warning in warnings:
        say(f"warning: probe {probe} on {representation}: {warning}")
    details = _details(results, labels, roles, classes, common)
    details |= {
        "probe": probe,
        "representation": representation,
        "provenance": readers[0].info.provenance.model_dump(),
        "warnings": warnings,
    }
    with whole_folder(out) as folder:
        write_json(folder / "metrics.json", metrics)
        write_json(folder / "details.json", details)
        write_predictions(folder, results[0]["converged"], readers[0], labels, classes)
    return metrics


def cell_statistics(folder: Path, fit: str = "converged") -> CellStatistics:
    """Return the per-take statistics a cell wrote, for `metrics.bootstrap`."""
    details = read_json(folder / "details.json")
    variants = [
        {take: TakeStatistics(**row) for take, row in variant[fit]["statistics"].items()}
        for variant in details["variants"]
    ]
    return CellStatistics(variants, details["groups"])


def _variant(
    reader: StreamReader,
    labels: Labels,
    roles: Roles,
    classes: Classes,
    common: ProbeCommonConfig,
    linear: LinearConfig,
) -> dict[str, FitResult]:
    """Return both fits of one variant."""

    def features(take: str) -> NDArray[np.float32]:
        return reader.read(take).features

    count, background = len(classes.names), classes.background
    return fit_and_score(features, labels, roles, count, background, common, linear)


def _metrics(results: Sequence[Mapping[str, FitResult]]) -> dict[str, float]:
    """Return means over variants: the converged fit plain, the paper's under `paper_`."""
    found: dict[str, float] = {}
    for fit, prefix in (("converged", ""), ("paper", "paper_")):
        rows = [result[fit].metrics() for result in results]
        found |= {prefix + name: float(np.mean([row[name] for row in rows])) for name in METRICS}
    return found


def _warnings(
    metrics: Mapping[str, float], results: Sequence[Mapping[str, FitResult]]
) -> list[str]:
    found = []
    gap = metrics["acc"] - metrics["paper_acc"]
    if abs(gap) > DISAGREEMENT:
        found.append(
            f"the fits differ by {abs(gap):.1f} points of acc (converged {metrics['acc']:.1f}, "
            f"paper {metrics['paper_acc']:.1f}); trust the converged one"
        )
    unfinished = [r for r in results if not r["converged"].probe.details["converged"]]
    if unfinished:
        iterations = unfinished[0]["converged"].probe.details["iterations"]
        found.append(
            f"the converged fit stopped after {iterations} iterations above its tolerance; "
            "raise probe.linear.max_iterations"
        )
    return found


def _details(
    results: Sequence[Mapping[str, FitResult]],
    labels: Labels,
    roles: Roles,
    classes: Classes,
    common: ProbeCommonConfig,
) -> dict[str, Any]:
    """Return everything behind the means, as JSON values."""
    intervals = {}
    for fit in FITS:
        variants = [result[fit].statistics for result in results]
        intervals[fit] = {
            name: asdict(interval(variants, roles.groups, name, common.bootstrap, common.seed))
            for name in METRICS
        }
    return {
        "split": roles.split,
        "takes": {"fit": len(roles.fit), "holdout": len(roles.holdout)}
        | {"reported": len(roles.reported)},
        "groups": dict(roles.groups),
        "convention": CONVENTION,
        "conventions": _other_conventions(results, labels, roles, classes.background),
        "intervals": intervals,
        "variants": [{fit: _fit_details(result[fit]) for fit in FITS} for result in results],
    }


def _fit_details(result: FitResult) -> dict[str, Any]:
    return {
        "metrics": result.metrics(),
        "fit": result.probe.details,
        "statistics": {take: row.to_dict() for take, row in result.statistics.items()},
    }


def _other_conventions(
    results: Sequence[Mapping[str, FitResult]],
    labels: Labels,
    roles: Roles,
    background: int | None,
) -> dict[str, dict[str, float]]:
    """Return the converged fit's metrics in every convention, means over variants."""
    truths = [labels[take] for take in roles.reported]
    found = {}
    for convention in CONVENTIONS:
        rows = [
            segmentation_scores(
                truths,
                [result["converged"].predictions[take].labels for take in roles.reported],
                background,
                convention,
            )
            for result in results
        ]
        found[convention] = {name: float(np.mean([row[name] for row in rows])) for name in METRICS}
    return found
