"""`pjepa summary`, `verify`, `compare`, `table`, `study` and `questions`: what runs gave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.core.tables import SHIPPED
from pjepa.storage.reading import read_object
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.cli.app import LOOK, app, one_line_errors, warn_of_stale_results
from pjepa.tools.cli.targets import check_target
from pjepa.tools.summary import AMPLIFIED, committed_metrics, metric_changes
from pjepa.ui.console import InputError, print_table

NEXT = (
    ("pjepa extract VIDEO --model models", "features of your own video by this encoder"),
    ("dvc exp run -S pjepa.mask_ratio=0.6", "another experiment; only what changed runs again"),
    ("dvc metrics diff", "what it changed"),
)


@app.command(rich_help_panel=LOOK)
def summary(
    probe: Annotated[
        str, typer.Option(help="Which probe; one of results/metrics.json.")
    ] = "linear",
) -> None:
    """Print the main numbers of this run, where the report is, and what to do next."""
    from pjepa.tools.summary import summary_table

    warn_of_stale_results()
    with one_line_errors():
        metrics = read_object(paths.METRICS)
        if metrics:
            print_table(*summary_table(metrics, probe))
        else:
            typer.echo(f"no probe was run: no take has labels; features: {paths.REPRESENTATIONS}")
    if (page := paths.REPORT / "index.html").exists():
        typer.echo(f"open {page}")
    for command, what in NEXT[ships_features() :]:
        typer.echo(f"next: {command:37} {what}")


def ships_features() -> bool:
    """Return whether tokens came with the data set, so that no video can be encoded like them."""
    config = paths.POOLER / "config.json"
    return config.exists() and read_object(config).get("kind") == SHIPPED


@app.command(rich_help_panel=LOOK)
def verify(
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="How far a number of a control may differ, in points."),
    ] = 2.0,
) -> None:
    """Compare results/metrics.json with the committed one. Exit code 1 if they differ.

    Numbers of the trained encoder may move three times as far as controls:
    another CPU model rounds differently, and training amplifies that.
    """
    warn_of_stale_results()
    with one_line_errors():
        present = read_object(paths.METRICS)
        changes = metric_changes(committed_metrics(paths.METRICS), present, tolerance)
    title = (
        f"{paths.METRICS} against HEAD, tolerance {tolerance:g} points, "
        f"{AMPLIFIED * tolerance:g} for the trained encoder"
    )
    print_table(
        title, ["metric", "committed", "now", "change", ""], [change.row() for change in changes]
    )
    differing = sum(not change.within for change in changes)
    typer.echo(f"{differing} of {len(changes)} numbers differ")
    if differing:
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def compare(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXP",
            help="Experiments, branches, tags or commits; workspace means the files on disk.",
        ),
    ],
    probe: Annotated[str | None, typer.Option(help="Only this probe; default: all.")] = None,
    metric: Annotated[str, typer.Option(help="acc, acc_bg, edit, f1_50, ...")] = "acc",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every number to this file.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Also write a page that compares two experiments.")
    ] = None,
) -> None:
    """Compare experiments with paired intervals; seeds and folds are averaged."""
    from pjepa.report.frames import pictures_store
    from pjepa.tools.compare.compare import (
        check_metric,
        compare_experiments,
        comparison_json,
        print_comparison,
    )
    from pjepa.tools.compare.experiments import read_experiment
    from pjepa.tools.compare.page import write_comparison_page

    with one_line_errors():
        if html_file is not None and len(experiments) != 2:
            raise InputError(f"--html: compares two experiments, given {len(experiments)}")
        check_target(json_file, "comparison", paths.METRICS)
        check_target(html_file, "page", paths.REPORT / "index.html")
        found = compare_experiments([read_experiment(name, probe) for name in experiments])
        if html_file is not None and not found.between:
            raise InputError("--html: needs two experiments on the same takes; these are folds")
        check_metric(found, metric)
        if json_file is not None:
            write_json(json_file, comparison_json(found))
        print_comparison(found, metric)
        if html_file is not None:
            write_comparison_page(found, pictures_store(), html_file)
            typer.echo(f"open {html_file}")


@app.command(rich_help_panel=LOOK)
def table(
    preset: Annotated[
        str | None, typer.Option(help="Compare as this preset; default: the one in use.")
    ] = None,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX.")] = False,
) -> None:
    """Print our metrics beside the paper's for this preset, and what is not comparable."""
    from pjepa.tools.compare.paper import applied_preset, caveats, latex, paper_table, text_rows
    from pjepa.tools.params import check_params
    from pjepa.tools.presets import preset_names

    warn_of_stale_results()
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
    if all(row.ours is None for row in found.rows):
        typer.echo("\nNothing of it was run: `dvc repro`.")
        return
    typer.echo("\nNot like for like:" if caveats(found) else "\nLike for like.")
    for line in caveats(found):
        typer.echo(f"- {line}")


STUDIED = ("acc", "macro_f1", "edit", "f1_50")


@app.command(rich_help_panel=LOOK)
def study(
    probe: Annotated[str, typer.Option(help="Which probe's fitted models are scored.")] = "linear",
    past: Annotated[
        list[int], typer.Option(min=0, help="Past blocks the encoder sees; may be repeated.")
    ] = [0, 1, 2, 4, 8],  # noqa: B006
    shuffles: Annotated[
        int, typer.Option(min=0, help="Random orders of segments to average; 0: none.")
    ] = 3,
    on: Annotated[
        Path, typer.Option(help="Project whose takes are scored, to test transfer.")
    ] = Path(),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every number to this file.")
    ] = None,
) -> None:
    """Score the fitted probes again with less context, shuffled segments or other data."""
    from dataclasses import asdict

    from pjepa.report.tables import with_span
    from pjepa.tools.studies import studied_project

    warn_of_stale_results()
    with one_line_errors():
        check_target(json_file, "study", paths.METRICS)
        found = studied_project(on, probe, past, shuffles)
        if json_file is not None:
            write_json(json_file, {"unknown": found.unknown, "rows": list(map(asdict, found.rows))})
    title = f"{probe} probe, {len(found.roles.reported)} {found.roles.split} takes, percent"
    header = ["representation", "context", *STUDIED, "change of acc (95 %)"]
    rows = [
        [
            *(row.representation, row.context),
            *(f"{row.scores[name].mean:.1f}" for name in STUDIED),
            with_span(row.change["acc"]) if row.change else "",
        ]
        for row in found.rows
    ]
    print_table(title, header, rows)
    if found.unknown:
        typer.echo(f"left out: {found.unknown:.1%} of the tokens, of classes that the probe lacks")


@app.command(rich_help_panel=LOOK)
def questions() -> None:
    """Measure how well features tell the next step and the progress of a take.

    Takes are cut inside their steps and encoded again, so that no feature has
    seen the rest. Writes results/questions/; `pjepa stream` and `pjepa predict`
    then show both.
    """
    from pjepa.tools.questions import AGAINST, answer_questions, table_lines

    warn_of_stale_results()
    with one_line_errors():
        tables, split = answer_questions()
    title = f"label of the next step, percent right on {split}, by the part of a step seen"
    steps = {name.removeprefix("next at "): tables[name] for name in tables if name != "progress"}
    print_table(title, *table_lines(steps, AGAINST["next"], "all - {}"))
    title = "progress, mean error in percent of the take; all but `constant` know the clock"
    print_table(title, *table_lines({"error": tables["progress"]}, AGAINST["progress"]))
    shown = "" if ships_features() else ": `pjepa stream` and `pjepa predict` now show both"
    typer.echo(f"{paths.QUESTIONS}{shown}")
