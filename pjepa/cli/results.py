"""`pjepa verify`, `pjepa compare` and `pjepa table`: what runs gave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa import paths
from pjepa.cli.app import app, one_line_errors, warn_of_stale_data
from pjepa.errors import InputError
from pjepa.report.terminal import print_table
from pjepa.report.verify import committed_metrics, metric_changes
from pjepa.work import read_json, write_json


@app.command()
def verify(
    tolerance: Annotated[
        float, typer.Option(min=0, help="Points by which a number may differ.")
    ] = 2.0,
) -> None:
    """Compare results/metrics.json with the committed one; exit code 1 if they differ."""
    warn_of_stale_data()
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
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Also write a page; for two experiments.")
    ] = None,
) -> None:
    """Pool experiments (pretraining seeds, say) into one table, with paired intervals."""
    from pjepa.report.compare import comparison
    from pjepa.report.compare_page import write_comparison_page
    from pjepa.report.compare_tables import check_metric, comparison_json, print_comparison
    from pjepa.report.experiments import read_experiment
    from pjepa.report.frames import pictures_store

    with one_line_errors():
        if html_file is not None and len(experiments) != 2:
            raise InputError(f"--html: puts two experiments side by side, given {len(experiments)}")
        found = comparison([read_experiment(name, probe) for name in experiments])
        check_metric(found, metric)
        if json_file is not None:
            write_json(json_file, comparison_json(found))
        print_comparison(found, metric)
        if html_file is not None:
            write_comparison_page(found, pictures_store(), html_file)
            typer.echo(f"open {html_file}")


@app.command()
def table(
    preset: Annotated[
        str | None, typer.Option(help="Compare as this preset; by default the applied one.")
    ] = None,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.")] = False,
) -> None:
    """Our metrics beside the paper's for the applied preset, and what is not like for like."""
    from pjepa.config.params import check_params
    from pjepa.config.presets import preset_names
    from pjepa.report.paper_table import applied_preset, caveats, latex, paper_table, text_rows

    warn_of_stale_data()
    with one_line_errors():
        params = check_params()
        name = preset or applied_preset(params, preset_names())
        found = paper_table(name, params, paths.cell)
    if as_latex:
        typer.echo(latex(found))
        return
    header, rows = text_rows(found)
    print_table(f"preset {name}, percent", header, rows)
    typer.echo(f"Linear probes by the paper's recipe; {paths.METRICS} has them to convergence.")
    typer.echo("\nNot like for like:" if caveats(found) else "\nLike for like.")
    for line in caveats(found):
        typer.echo(f"- {line}")
