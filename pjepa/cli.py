"""`pjepa`: the tools for people. The pipeline itself is `dvc repro`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pjepa import paths
from pjepa.config.params import check_params
from pjepa.config.presets import preset_text, text_difference
from pjepa.errors import InputError
from pjepa.report.terminal import print_table
from pjepa.report.verify import committed_metrics, metric_changes
from pjepa.work import read_json, whole_file, write_json

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dense, procedure-aware features for long video. `dvc repro` runs the pipeline.",
)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Bad input ends in one line on stderr and exit code 1, as in the stages."""
    try:
        yield
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def preset(
    name: Annotated[str, typer.Argument(help="A file of presets/, without .yaml.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Keep this section of the present params.yaml; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the diff only.")] = False,
) -> None:
    """Write params.yaml: the defaults and what a preset changes. Shows the diff."""
    with one_line_errors():
        after = preset_text(name, keep or [])
        before = paths.PARAMS.read_text() if paths.PARAMS.exists() else ""
        if before == after:
            typer.echo(f"{paths.PARAMS}: is already preset {name}")
            return
        typer.echo(text_difference(before, after), nl=False)
        if not dry_run:
            with whole_file(paths.PARAMS) as partial:
                partial.write_text(after)


@app.command()
def check() -> None:
    """Check every section of params.yaml."""
    with one_line_errors():
        check_params()
    typer.echo("ok")


@app.command()
def verify(
    tolerance: Annotated[
        float, typer.Option(min=0, help="Points by which a number may differ.")
    ] = 2.0,
) -> None:
    """Compare results/metrics.json with the committed one; exit code 1 if they differ."""
    with one_line_errors():
        present = read_json(paths.METRICS)
        changes = metric_changes(committed_metrics(paths.METRICS), present, tolerance)
    title = f"{paths.METRICS} against HEAD, tolerance {tolerance:g} points"
    print_table(
        title, ["metric", "committed", "now", "change", ""], [change.row() for change in changes]
    )
    differing = sum(not change.within for change in changes)
    typer.echo(f"{differing} of {len(changes)} numbers differ")
    if differing:
        raise typer.Exit(1)


@app.command()
def compare(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXP",
            help="Experiments, branches, tags or commits; `workspace`: the files on disk.",
        ),
    ],
    probe: Annotated[str | None, typer.Option(help="Only this probe; all by default.")] = None,
    metric: Annotated[str, typer.Option(help="acc, acc_bg, edit, f1_50, ...")] = "acc",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every number to this file.")
    ] = None,
) -> None:
    """Pool experiments (pretraining seeds, say) into one table, with paired intervals."""
    from pjepa.report.compare import comparison
    from pjepa.report.compare_tables import check_metric, comparison_json, print_comparison
    from pjepa.report.experiments import read_experiment

    with one_line_errors():
        found = comparison([read_experiment(name, probe) for name in experiments])
        check_metric(found, metric)
        if json_file is not None:
            write_json(json_file, comparison_json(found))
        print_comparison(found, metric)


@app.command()
def selftest(
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    width: Annotated[int, typer.Option(min=8, help="Width of the model that is timed.")] = 256,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    tokens: Annotated[int, typer.Option(min=45, help="Tokens of the take that is timed.")] = 2048,
) -> None:
    """Check that a device computes what the CPU computes, and time it; prints JSON."""
    from pjepa.selftest import run_selftest

    with one_line_errors():
        report = run_selftest(device, width, heads, tokens)
    typer.echo(json.dumps(report, indent=2))
    if not report["ok"]:
        raise typer.Exit(1)
