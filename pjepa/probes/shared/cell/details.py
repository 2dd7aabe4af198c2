"""Everything behind a cell's means: intervals, conventions, provenance, choices, warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pjepa.metrics.bootstrap import intervals
from pjepa.metrics.segmentation import CONVENTIONS, METRICS, segmentation_scores
from pjepa.probes.base.data import CellData, Run, TakeSource
from pjepa.probes.shared.cell.sparsity import Budget

CONVENTION = "release"
DISAGREEMENT = 3.0  # points of acc between two fits that deserve a warning
Fits = Mapping[str, Sequence[Run]]  # the first is the one that tables show


def cell_metrics(fits: Fits) -> dict[str, float]:
    """Return means over variants and seeds: the first fit plain, others under their name."""
    found: dict[str, float] = {}
    for place, (fit, runs) in enumerate(fits.items()):
        rows = [run.result.metrics() for run in runs]
        prefix = f"{fit}_" if place else ""
        found |= {prefix + name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return found


def cell_warnings(cell: CellData, metrics: Mapping[str, float], fits: Fits) -> list[str]:
    """Return what a reader of the numbers should know, a sentence each."""
    found = []
    if "paper_acc" in metrics:
        gap = metrics["acc"] - metrics["paper_acc"]
        if abs(gap) > DISAGREEMENT:
            found.append(
                f"the fits differ by {abs(gap):.1f} points of acc (converged {metrics['acc']:.1f}, "
                f"paper {metrics['paper_acc']:.1f}); trust the converged one"
            )
    stopped = [
        run.result.probe.details["iterations"]
        for run in fits.get("converged", ())
        if not run.result.probe.details["converged"]
    ]
    if stopped:
        found.append(
            f"the converged fit stopped after {stopped[0]} iterations above its tolerance; "
            "raise probe.linear.max_iterations"
        )
    if chose_on_reported(cell):
        found.append(f"chosen on {cell.roles.split}, the split that is reported: too high")
    return found


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
        "labels": budget.to_dict(),
        "sight": probe_sight(cell, next(iter(fits.values()))[0]),
        "convention": CONVENTION,
        "conventions": other_conventions(cell, next(iter(fits.values()))),
        "intervals": {fit: run_intervals(cell, runs) for fit, runs in fits.items()},
        "fits": list(fits),
        "runs": {fit: [run.to_dict() for run in runs] for fit, runs in fits.items()},
    }


def run_intervals(cell: CellData, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the interval of every metric over groups; runs are averaged in each resample."""
    variants = [run.result.statistics for run in runs]
    found = intervals(variants, cell.roles.groups, cell.common.bootstrap, cell.common.seed)
    return {name: asdict(value) for name, value in found.items()}


def probe_sight(cell: CellData, run: Run) -> dict[str, Any]:
    """Return how far the probe itself looks ahead offline, on top of the representation."""
    sight, source = run.result.probe.sight, TakeSource(cell.readers[run.variant])
    ahead = [
        sight.lookahead_s(source.segments(take), source.reader.read_layout(take).times)
        for take in cell.roles.reported
    ]
    return {"to": sight.to, "whole_take": sight.whole_take, "lookahead_s": max(ahead)}


def other_conventions(cell: CellData, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the metrics in every convention, means over variants and seeds."""
    truths = [cell.labels[take] for take in cell.roles.reported]
    found = {}
    for convention in CONVENTIONS:
        rows = [
            segmentation_scores(
                truths,
                [run.result.predictions[take].labels for take in cell.roles.reported],
                cell.classes.background,
                convention,
            )
            for run in runs
        ]
        found[convention] = {name: float(np.mean([row[name] for row in rows])) for name in METRICS}
    return found
