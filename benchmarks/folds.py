"""A cross-validated set, all folds pooled: `python -m benchmarks.folds [--json FILE]`.

Runs the present params as a DVC experiment for every `data.fold` and prints accuracy over the test
takes of all folds, with paired 95 % intervals over groups (people). The references are the
controls. `--setting` adds other params to compare, such as `--setting eq2:pjepa.neighbours=null` or
`--setting fixed:pjepa.segments=fixed,pjepa.attention=block_causal`. Several `--seeds` are averaged.
Stages already run come from the run-cache, so the command can be stopped and repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import dvc.api
import typer

from benchmarks.proof import found_revision
from pjepa.core.section import read_section
from pjepa.metrics.bootstrap import Interval, difference_intervals, intervals
from pjepa.metrics.segmentation import TakeStatistics
from pjepa.report.config import CellsConfig
from pjepa.report.results import CellStatistics
from pjepa.takes.config import DataConfig
from pjepa.tools import paths
from pjepa.ui.console import say

METRIC, RESAMPLES = "acc", 2000
AGAINST = ("raw", "smooth", "segment_mean", "history", "random")
ENCODED = ("pjepa", "pjepa_segment")
Details = Mapping[str, Any]  # a cell's details.json
Pooled = dict[str, CellStatistics]  # by `probe representation`


def run_experiment(name: str, overrides: Sequence[str]) -> str:
    """Return the revision of an experiment with these overrides."""
    say(f"folds: {name}")
    if found_revision(name):  # DVC does not write over a name, and its --force runs every stage
        subprocess.run([sys.executable, "-m", "dvc", "exp", "remove", "--quiet", name], check=True)
    done = subprocess.run(experiment_command(name, overrides), stdout=subprocess.DEVNULL)
    revision = "" if done.returncode else found_revision(name)
    if not revision:
        raise SystemExit(f"error: no experiment {name}; see the messages above")
    return revision


def experiment_command(name: str, overrides: Sequence[str]) -> list[str]:
    """Return the command that runs the cells and what they need: no curve, no report.

    The list of source files may be new, so that Git does not bring it along.
    """
    listed = paths.source_list(read_section(DataConfig, "data").source)
    command = [sys.executable, "-m", "dvc", "exp", "run", "--temp", "--name", name]
    command += ["--copy-paths", str(listed)]
    for override in overrides:
        command += ["-S", override]
    return [*command, "probe"]


def check_first_run() -> None:
    """Refuse to start in a clone without a run: DVC would fail after hours, when it stores one.

    dvc.lock names a report of another machine, and DVC stores no experiment without that file.
    """
    if not (paths.REPORT / "report.json").exists():
        raise SystemExit("error: results/report: no report yet; run `dvc repro` first")


def cell_details(revision: str, probe: str, representation: str) -> Details:
    path = f"results/probe/{probe}-{representation}/details.json"
    return dict(json.loads(dvc.api.read(path, rev=revision)))


def pooled(folds: Sequence[Sequence[Details]]) -> CellStatistics:
    """Return one cell over all folds; `folds` holds a fold's details, one per pretraining seed.

    A variant (seed, or draw of an untrained encoder) has the takes of every fold.
    """
    groups: dict[str, str] = {}
    variants: list[dict[str, TakeStatistics]] = []
    for seeds in folds:
        runs = [run for details in seeds for run in details["runs"][details["fits"][0]]]
        variants = variants or [{} for _ in runs]
        for variant, run in zip(variants, runs, strict=True):
            rows = run["statistics"].items()
            variant.update({take: TakeStatistics.from_dict(row) for take, row in rows})
        groups.update(seeds[0]["groups"])
    return CellStatistics(variants, groups)


def differences(cells: Pooled) -> dict[str, Interval]:
    """Return every encoder cell minus every control of the same probe."""
    found = {}
    for name, cell in cells.items():
        probe, representation = name.split()
        for other in AGAINST if representation in ENCODED else ():
            if f"{probe} {other}" in cells:
                rest = cells[f"{probe} {other}"]
                found[f"{name} - {other}"] = difference_intervals(
                    cell.variants, rest.variants, cell.groups, RESAMPLES, 0
                )[METRIC]
    return found


def between(settings: Mapping[str, Pooled]) -> dict[str, Interval]:
    """Return every encoder cell of the first setting minus the same cell of the others."""
    (first, ours), *others = settings.items()
    return {
        f"{name}: {first} - {other}": difference_intervals(
            ours[name].variants, cells[name].variants, ours[name].groups, RESAMPLES, 0
        )[METRIC]
        for other, cells in others
        for name in ours
        if name.split()[1] in ENCODED
    }


def run_setting(name: str, overrides: Sequence[str], folds: int, seeds: int) -> Pooled:
    """Return all folds and seeds of one setting."""
    revisions = [
        [
            run_experiment(
                f"folds-{name}-{fold}-{seed}",
                [*overrides, f"data.fold={fold}", f"pjepa.seed={seed}"],
            )
            for seed in range(seeds)
        ]
        for fold in range(1, folds + 1)
    ]
    cells = read_section(CellsConfig, "cells")
    return {
        f"{probe} {representation}": pooled(
            [[cell_details(r, probe, representation) for r in fold] for fold in revisions]
        )
        for probe in cells.probes
        for representation in cells.representations
    }


def show(settings: Mapping[str, Pooled]) -> dict[str, dict[str, float]]:
    """Print the tables and return their numbers."""
    rows: dict[str, Interval] = {}
    for name, cells in settings.items():
        for what, cell in cells.items():
            rows[f"{name}: {what}"] = intervals(cell.variants, cell.groups, RESAMPLES, 0)[METRIC]
        for what, found in differences(cells).items():
            rows[f"{name}: {what}"] = found
    rows |= between(settings)
    for what, found in rows.items():
        print(f"{what:60} {found.mean:7.2f}  [{found.low:7.2f}, {found.high:7.2f}]")
    return {what: vars(found) for what, found in rows.items()}


def main(
    folds: Annotated[int, typer.Option(help="Folds to run, from 1 on.", min=1)] = 5,
    seeds: Annotated[int, typer.Option(help="Pretraining seeds, from 0 on.", min=1)] = 1,
    setting: Annotated[list[str] | None, typer.Option(help="name:override,override")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Run the folds and print pooled numbers."""
    check_first_run()
    wanted: dict[str, list[str]] = {"params": []}
    for text in setting or []:
        name, _, overrides = text.partition(":")
        wanted[name] = overrides.split(",")
    found = {name: run_setting(name, o, folds, seeds) for name, o in wanted.items()}
    numbers = show(found)
    if json_file:
        json_file.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
