"""`pjepa preset` and `pjepa check`: params.yaml."""

from __future__ import annotations

from typing import Annotated

import typer

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.config.params import check_params
from pjepa.config.presets import preset_text, text_difference
from pjepa.work import whole_file


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
